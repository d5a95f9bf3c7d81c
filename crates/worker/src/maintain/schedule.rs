//! Schedules: which ticks have come, and asking the database to fire each once (Q17).

use jiff::Timestamp;
use towpath_db::job::{CatchUp, DueSchedule, Tick};
use towpath_db::{Database, Error};
use towpath_model::cron::Cron;

use crate::limits;

/// What to do about one due schedule.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// Fire these, oldest first.
    Fire(Vec<Tick>),
    /// Fire none, wait for this moment.
    Skip(Timestamp),
    /// The expression has no further tick.
    Nothing,
}

/// The loop's name among faults.
const LOOP: &str = "schedules";

/// Fires what is due; answers how many ticks became jobs here and not elsewhere. A schedule that cannot be read or fired is
/// set aside (Q22).
pub(super) async fn tick(database: &Database) -> Result<usize, Error> {
    let due = database.schedule_due(limits::SCHEDULES).await?;
    let mut fired = 0;
    for schedule in &due.due {
        let cron = match Cron::parse(&schedule.expression, &schedule.time_zone) {
            Ok(cron) => cron,
            Err(error) => {
                set_aside(database, schedule, &error.to_string()).await?;
                continue;
            }
        };
        match act(database, schedule, plan(&cron, schedule, due.now)).await {
            Ok(ticks) => fired += ticks,
            // Deleted or paused a moment ago.
            Err(Error::NotFound(_) | Error::Conflict(_)) => {}
            Err(error @ (Error::Postgres(_) | Error::Invalid(_))) => {
                set_aside(database, schedule, &error.to_string()).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(fired)
}

async fn act(database: &Database, schedule: &DueSchedule, plan: Plan) -> Result<usize, Error> {
    let mut fired = 0;
    match plan {
        Plan::Fire(ticks) => {
            for tick in ticks {
                fired += usize::from(database.schedule_fire(&schedule.name, tick).await?.fired);
            }
        }
        Plan::Skip(next_at) => database.schedule_skip(&schedule.name, schedule.next_at, next_at).await?,
        Plan::Nothing => {
            let error = format!("{:?} has no tick after {}", schedule.expression, schedule.next_at);
            set_aside(database, schedule, &error).await?;
        }
    }
    Ok(fired)
}

/// If the connection is lost, this fails too, and the pass with it.
async fn set_aside(database: &Database, schedule: &DueSchedule, error: &str) -> Result<(), Error> {
    tracing::error!("schedule {} failed to tick: {error}; see: towpath fault list", schedule.name);
    database.loop_fault_record(LOOP, &schedule.name, error).await
}

/// The tick that the row waits for is due. If more are due by now, they were missed while no node
/// ran maintenance.
fn plan(cron: &Cron, schedule: &DueSchedule, now: Timestamp) -> Plan {
    let first = schedule.next_at;
    match schedule.catch_up {
        CatchUp::All => {
            let ticks = std::iter::successors(Some(first), |tick| cron.next_after(*tick));
            let ticks = ticks.take_while(|tick| *tick <= now).take(limits::CATCH_UP_TICKS);
            Plan::Fire(ticks.filter_map(|at| Some(Tick { at, next_at: cron.next_after(at)? })).collect())
        }
        CatchUp::Last => {
            let at = last_tick(cron, first, now);
            cron.next_after(at).map_or(Plan::Nothing, |next_at| Plan::Fire(vec![Tick { at, next_at }]))
        }
        // A tick that has just come is not a missed one.
        CatchUp::Skip => match cron.next_after(first) {
            Some(next_at) if next_at > now => Plan::Fire(vec![Tick { at: first, next_at }]),
            Some(_) => {
                let at = last_tick(cron, first, now);
                cron.next_after(at).map_or(Plan::Nothing, Plan::Skip)
            }
            None => Plan::Nothing,
        },
    }
}

/// The last tick up to now, at or after `first`.
///
/// Cron only looks forward. After a long pause of a frequent schedule the search starts
/// nearer to now, from the widest step back that still finds a tick.
fn last_tick(cron: &Cron, first: Timestamp, now: Timestamp) -> Timestamp {
    for minutes in [2, 120, 60 * 26, 60 * 24 * 8] {
        let from = now - jiff::Span::new().minutes(minutes);
        if from <= first {
            break;
        }
        let near =
            cron.ticks_after(from).take_while(|tick| *tick <= now).take(limits::TICKS_SEARCHED_MAX).last();
        if let Some(near) = near {
            return near;
        }
    }
    let later =
        cron.ticks_after(first).take_while(|tick| *tick <= now).take(limits::TICKS_SEARCHED_MAX).last();
    later.unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(catch_up: CatchUp, next_at: &str) -> DueSchedule {
        DueSchedule {
            name: "report".into(),
            expression: "0 * * * *".into(),
            time_zone: "UTC".into(),
            catch_up,
            next_at: at(next_at),
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a moment")
    }

    fn planned(catch_up: CatchUp, next_at: &str, now: &str) -> Plan {
        let schedule = schedule(catch_up, next_at);
        let cron = Cron::parse(&schedule.expression, &schedule.time_zone).expect("a cron expression");
        plan(&cron, &schedule, at(now))
    }

    fn tick(at_: &str, next_at: &str) -> Tick {
        Tick { at: at(at_), next_at: at(next_at) }
    }

    /// Q17: a tick that is on time fires whatever the policy.
    #[test]
    fn a_tick_on_time_fires_under_every_policy() {
        for policy in [CatchUp::Skip, CatchUp::Last, CatchUp::All] {
            let plan = planned(policy, "2026-01-01T08:00:00Z", "2026-01-01T08:00:01Z");
            assert_eq!(
                plan,
                Plan::Fire(vec![tick("2026-01-01T08:00:00Z", "2026-01-01T09:00:00Z")]),
                "{policy:?}"
            );
        }
    }

    /// Q17: after a pause, nothing, the last one or all of them.
    #[test]
    fn missed_ticks_follow_the_policy() {
        let (first, now) = ("2026-01-01T08:00:00Z", "2026-01-01T10:30:00Z");
        assert_eq!(planned(CatchUp::Skip, first, now), Plan::Skip(at("2026-01-01T11:00:00Z")));
        let last = tick("2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z");
        assert_eq!(planned(CatchUp::Last, first, now), Plan::Fire(vec![last]));
        let all = vec![
            tick("2026-01-01T08:00:00Z", "2026-01-01T09:00:00Z"),
            tick("2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z"),
            last,
        ];
        assert_eq!(planned(CatchUp::All, first, now), Plan::Fire(all));
    }

    /// Years of missed seconds are not walked one by one.
    #[test]
    fn the_last_missed_tick_is_found_from_nearby() {
        let cron = Cron::parse("* * * * * *", "UTC").expect("every second");
        let last = last_tick(&cron, at("2020-01-01T00:00:00Z"), at("2026-01-01T00:00:00.5Z"));
        assert_eq!(last, at("2026-01-01T00:00:00Z"));
        let yearly = Cron::parse("0 0 1 1 *", "UTC").expect("every year");
        let last = last_tick(&yearly, at("2020-01-01T00:00:00Z"), at("2026-07-01T00:00:00Z"));
        assert_eq!(last, at("2026-01-01T00:00:00Z"));
    }
}
