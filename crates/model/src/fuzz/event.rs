//! Recipients and routing decisions, over random rules.

use serde_json::Value;

use super::dice::Dice;
use crate::event::Event;
use crate::event::contain::contains;
use crate::event::recipient::{Recipient, Recipients, Resolution, Step, Subscription, resolve};
use crate::event::route::{Decided, Decision, Mode, Reason, Route, Target, decide};

/// Bytes as choices: three values, then an event, subscriptions and routes.
pub fn event(data: &[u8]) {
    let mut dice = Dice(data);
    containment(&dice.json(3), &dice.json(3), &dice.json(3));
    let event = Event {
        event_domain: dice.one(&["a", "b"]).to_owned(),
        event_type: dice.one(&["a", "b"]).to_owned(),
        event_stream: dice.name(),
        subject_table: dice.name(),
        payload: Value::Object(dice.object(2)),
    };
    let count = dice.below(6);
    let rows: Vec<Subscription> = (0..count).map(|no| row(&mut dice, no as i32)).collect();
    let resolved = recipients(&event, &rows);
    let count = dice.below(5);
    let routes: Vec<Route> = (0..count).map(|no| route(&mut dice, no)).collect();
    decisions(&event, &resolved, &routes);
}

/// Containment is transitive.
fn containment(a: &Value, b: &Value, c: &Value) {
    assert!(contains(a, a), "{a} does not contain itself");
    if contains(a, b) && contains(b, c) {
        assert!(contains(a, c), "{a} contains {b}, that contains {c}");
    }
    if let (Value::Object(part), true) = (b, contains(a, b)) {
        for key in part.keys() {
            let mut less = part.clone();
            less.remove(key);
            assert!(contains(a, &Value::Object(less)), "asking for less of {a} finds less");
        }
    }
    if let (Value::Object(whole), Value::Object(more)) = (a, c) {
        let mut all = more.clone();
        all.extend(whole.clone());
        assert!(contains(&Value::Object(all), a), "more beside {a} hides it");
    }
}

fn row(dice: &mut Dice<'_>, no: i32) -> Subscription {
    Subscription {
        no,
        recipient_ref: dice.one(&["role:a", "role:b", "user:a"]).to_owned(),
        event_domain: dice.one(&["a", "b"]).to_owned(),
        event_type: dice.name(),
        event_stream: dice.name(),
        scope_subject_table: dice.name(),
        scope_filter: Value::Object(dice.object(2)),
        mute: dice.below(2) == 1,
    }
}

fn route(dice: &mut Dice<'_>, no: usize) -> Route {
    Route {
        route_name: format!("r{no}"),
        event_domain: dice.name(),
        event_type: dice.name(),
        event_stream: dice.name(),
        recipient_filter: dice
            .one(&[None, Some("role:a"), Some("role:*"), Some("user:*")])
            .map(str::to_owned),
        payload_filter: Value::Object(dice.object(2)),
        mode: dice.one(&[Mode::Off, Mode::DryRun, Mode::Live]),
    }
}

/// R02, R04: for each recipient the most specific row decides, whatever the order of the rows.
fn recipients(event: &Event, rows: &[Subscription]) -> Recipients {
    let resolved = resolve(event, rows, Resolution::On);
    let mut turned = rows.to_vec();
    turned.reverse();
    assert_eq!(resolve(event, &turned, Resolution::On), resolved, "the order of rows made a difference");
    for who in ["role:a", "role:b", "user:a"] {
        let fit = |row: &&Subscription| row.recipient_ref == who && alone(event, row);
        let mut fitting: Vec<&Subscription> = rows.iter().filter(fit).collect();
        // A stable sort by each rule, the weakest first.
        fitting.sort_by_key(|row| row.no);
        fitting.sort_by_key(|row| {
            std::cmp::Reverse(row.scope_filter.as_object().map_or(0, serde_json::Map::len))
        });
        fitting.sort_by_key(|row| row.scope_subject_table.is_none());
        fitting.sort_by_key(|row| match (row.event_stream.is_some(), row.event_type.is_some()) {
            (true, true) => 0,
            (true, false) => 1,
            (false, true) => 2,
            (false, false) => 3,
        });
        let of = |list: &[Recipient]| list.iter().find(|one| one.recipient_ref == who).map(|one| one.no);
        let first = fitting.first();
        assert_eq!(of(&resolved.recipients), first.filter(|row| !row.mute).map(|row| row.no));
        assert_eq!(of(&resolved.suppressed), first.filter(|row| row.mute).map(|row| row.no));
    }
    let off = resolve(event, rows, Resolution::Off);
    assert_eq!((off.step(), off.suppressed.len()), (Step::BroadcastFallback, 0));
    resolved
}

/// Whether a row matches by itself.
fn alone(event: &Event, row: &Subscription) -> bool {
    let said = resolve(event, std::slice::from_ref(row), Resolution::On);
    said.recipients.len() + said.suppressed.len() == 1
}

/// E05: each route decides independently, within its mode.
fn decisions(event: &Event, resolved: &Recipients, routes: &[Route]) {
    let refuses = |route: &Route| if route.route_name == "r1" { Target::Refuses } else { Target::Takes };
    let decided = decide(event, resolved, routes, refuses);
    let nobody =
        vec![Decided { route_name: None, decision: Decision::Skipped, reason: Some(Reason::NoRoute) }];
    let one_by_one: Vec<Decided> = routes
        .iter()
        .map(|route| decide(event, resolved, std::slice::from_ref(route), refuses))
        .filter(|one| *one != nobody)
        .flatten()
        .collect();
    assert_eq!(decided, if one_by_one.is_empty() { nobody } else { one_by_one }, "routes are not alone");
    for one in &decided {
        let Some(route) = routes.iter().find(|route| Some(&route.route_name) == one.route_name.as_ref())
        else {
            continue;
        };
        let allowed = match route.mode {
            Mode::Off => vec![Decision::Disabled],
            Mode::DryRun => vec![Decision::DryRun, Decision::Skipped],
            Mode::Live => vec![Decision::Sent, Decision::Failed, Decision::Skipped],
        };
        assert!(allowed.contains(&one.decision), "{route:?} decided {one:?}");
        let muted = |name: &str| resolved.suppressed.iter().any(|muted| muted.recipient_ref == name);
        let reached = matches!(one.decision, Decision::Sent | Decision::Failed | Decision::DryRun);
        assert!(
            !reached || !route.recipient_filter.as_deref().is_some_and(muted),
            "{route:?} reached who is muted"
        );
    }
}
