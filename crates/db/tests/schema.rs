//! `sql/schema.sql`: the whole present schema on one page. Its objects come from the catalogue, their order and their
//! comments from the files that make them.

use std::collections::BTreeMap;
use std::path::Path;

use towpath_db::migrate::{INSTALL, MIGRATIONS, SOURCES};
use towpath_testkit::TestDb;

/// Set by `./dev docs schema`: write the file instead of comparing it.
const WRITE_VARIABLE: &str = "WRITE_SCHEMA_SQL";
const WIDTH: usize = 110;

/// The page that people read is the schema that migrate installs.
#[tokio::test]
async fn schema_sql_is_the_present_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql/schema.sql");
    let present = page(&TestDb::new().await).await;
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        return std::fs::write(&path, present).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = present.lines().zip(written.lines()).position(|(present, written)| present != written);
    let line = differs.unwrap_or(present.lines().count().min(written.lines().count())) + 1;
    assert!(present == written, "sql/schema.sql is stale from line {line} on; run: ./dev docs schema");
}

/// An object of ours and what the catalogue says of it, line by line.
const OBJECTS: &str = r"
with relation as (
    select c.*, format('%s.%s', n.nspname, c.relname) as name
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname in ('towpath', 'comms') and not c.relispartition and c.relkind in ('r', 'p', 'v', 'c')
), line as (
    select r.name, 1 as part, a.attnum::integer as place, a.attname::text as key,
           concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), case when a.attnotnull then 'not null' end,
                     case when a.attidentity <> '' then 'generated always as identity' end,
                     'default ' || pg_get_expr(d.adbin, d.adrelid)) as text
      from relation r join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
      left join pg_attrdef d on d.adrelid = r.oid and d.adnum = a.attnum
    union all
    select r.name, 1, 10000 + row_number() over (partition by r.oid order by position(c.contype in 'pufc'), c.conname)::integer,
           null, format('constraint %s %s', c.conname, pg_get_constraintdef(c.oid))
      from relation r join pg_constraint c on c.conrelid = r.oid and c.contype in ('p', 'u', 'f', 'c')
    union all
    select format_type(t.oid, null), 1, row_number() over (partition by t.oid order by c.conname)::integer,
           null, format('constraint %s %s', c.conname, pg_get_constraintdef(c.oid))
      from pg_constraint c join pg_type t on t.oid = c.contypid
     where t.typnamespace in ('towpath'::regnamespace, 'comms'::regnamespace)
    union all
    select r.name, 2, row_number() over (partition by r.oid order by i.indexrelid::regclass::text)::integer,
           x.relname, pg_get_indexdef(i.indexrelid)
      from relation r join pg_index i on i.indrelid = r.oid join pg_class x on x.oid = i.indexrelid
     where not exists (select 1 from pg_constraint c where c.conindid = i.indexrelid and c.contype in ('p', 'u'))
    union all
    select r.name, 3, row_number() over (partition by r.oid order by t.tgname)::integer, null, pg_get_triggerdef(t.oid)
      from relation r join pg_trigger t on t.tgrelid = r.oid where not t.tgisinternal
), object as (
    select r.name, case r.relkind when 'v' then 'view' when 'c' then 'type' else 'table' end as kind,
           concat_ws(' ', 'partition by ' || pg_get_partkeydef(r.oid),
                     'with (' || (select string_agg(replace(o, '=', ' = '), ', ' order by o)
                                     from unnest(r.reloptions) o) || ')') as tail
      from relation r
    union all
    select format_type(t.oid, null), 'domain', format_type(t.typbasetype, t.typtypmod)
      from pg_type t where t.typtype = 'd' and t.typnamespace in ('towpath'::regnamespace, 'comms'::regnamespace)
)
select o.name, o.kind, coalesce(o.tail, ''),
       coalesce(array_agg(l.part order by l.part, l.place) filter (where l.part is not null), '{}'),
       coalesce(array_agg(coalesce(l.key, '') order by l.part, l.place) filter (where l.part is not null), '{}'),
       coalesce(array_agg(l.text order by l.part, l.place) filter (where l.part is not null), '{}')
  from object o left join line l on l.name = o.name
 group by o.name, o.kind, o.tail";

const FUNCTIONS: &str = "
select format('%s.%s', n.nspname, p.proname),
       array_agg(format('%s.%s(%s) returns %s', n.nspname, p.proname, pg_get_function_arguments(p.oid),
                        pg_get_function_result(p.oid)) order by p.oid)
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace
 where n.nspname in ('towpath', 'comms') group by 1";

async fn page(db: &TestDb) -> String {
    let client = db.client().await;
    let rows = client.query(OBJECTS, &[]).await.unwrap();
    let mut objects: BTreeMap<String, tokio_postgres::Row> =
        rows.into_iter().map(|row| (row.get(0), row)).collect();
    let rows = client.query(FUNCTIONS, &[]).await.unwrap();
    let mut functions: BTreeMap<String, Vec<String>> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();

    let mut page =
        "-- The present schema, written by `./dev docs schema`. Change the files it names, not this one.\n"
            .to_owned();
    let migrations = MIGRATIONS.iter().map(|m| (format!("migrations/{}.sql", m.name), m.sql));
    let sources = SOURCES.iter().map(|source| (source.path.to_owned(), source.sql.as_ref()));
    for (path, sql) in [("install.sql".to_owned(), INSTALL)].into_iter().chain(migrations).chain(sources) {
        let file = File::read(sql);
        page.push_str(&format!("\n-- sql/{path}\n"));
        for name in &file.made {
            if let Some(object) = objects.remove(name) {
                page.push_str(&file.definition(&object));
            }
            for signature in functions.remove(name).into_iter().flatten() {
                page.push_str(&wrapped("-- ", "--     ", &plain(&signature)));
            }
        }
    }
    assert!(objects.is_empty() && functions.is_empty(), "no file makes {objects:?} {functions:?}");
    page
}

/// What a file makes, in its order, and the comments above what it makes.
#[derive(Default)]
struct File {
    made: Vec<String>,
    comments: BTreeMap<String, String>,
}

impl File {
    fn read(sql: &str) -> File {
        let (mut file, mut comment, mut table) = (File::default(), vec![], None);
        for line in sql.lines() {
            if let Some(text) = line.trim_start().strip_prefix("--") {
                comment.push(text.trim());
                continue;
            }
            let made = made_by(line).map(ToOwned::to_owned);
            let key = match (&made, &table) {
                (None, Some(table)) => {
                    line.split_whitespace().next().map(|column| format!("{table}.{column}"))
                }
                (made, _) => made.clone(),
            };
            let paragraph: Vec<&str> = comment.drain(..).take_while(|text: &&str| !text.is_empty()).collect();
            if let (Some(key), false) = (key, paragraph.is_empty()) {
                file.comments.insert(key, paragraph.join(" "));
            }
            if line.starts_with("create") && line.ends_with('(') {
                table = made.clone();
            } else if line.starts_with(')') {
                table = None;
            }
            file.made.extend(made.filter(|name| !file.made.contains(name)));
        }
        file
    }

    fn definition(&self, row: &tokio_postgres::Row) -> String {
        let (name, kind, tail): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let (parts, keys, texts): (Vec<i32>, Vec<String>, Vec<String>) = (row.get(3), row.get(4), row.get(5));
        let mut sql = "\n".to_owned() + &self.comment("", &name);
        let head = if kind == "type" { "type {name} as" } else { "{kind} {name}" };
        let head = head.replace("{kind}", &kind).replace("{name}", &name);
        let tail = plain(&tail);
        if kind == "domain" {
            sql.push_str(&format!("create {head} as {tail}\n"));
        } else {
            sql.push_str(&format!("create {head} (\n"));
        }
        let inner = parts.iter().filter(|part| **part == 1).count();
        for (index, (part, (key, text))) in parts.iter().zip(keys.iter().zip(&texts)).enumerate() {
            let last = index + 1 == inner;
            if *part == 1 {
                let end = match (kind.as_str(), last) {
                    ("domain", true) => ";",
                    ("domain", false) | (_, true) => "",
                    _ => ",",
                };
                sql.push_str(&self.comment("    ", &format!("{name}.{key}")));
                sql.push_str(&wrapped("    ", "        ", &(plain(text) + end)));
                if last && kind != "domain" {
                    sql.push_str(&format!("){}{tail};\n", if tail.is_empty() { "" } else { " " }));
                }
            } else {
                sql.push_str(&self.comment("", key));
                sql.push_str(&wrapped("", "    ", &(plain(text) + ";")));
            }
        }
        sql
    }

    fn comment(&self, indent: &str, key: &str) -> String {
        let prefix = format!("{indent}-- ");
        self.comments.get(key).map(|text| wrapped(&prefix, &prefix, text)).unwrap_or_default()
    }
}

/// The object that a line begins to make: `towpath.job` of `create table towpath.job (`.
fn made_by(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("create ")?;
    let rest = rest.strip_prefix("or replace ").or_else(|| rest.strip_prefix("unique ")).unwrap_or(rest);
    let kinds = ["table", "domain", "type", "view", "index", "function"];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind)?.strip_prefix(' '))?;
    let rest = rest.strip_prefix("if not exists ").unwrap_or(rest);
    rest.split([' ', '(']).next()
}

/// As we write SQL: lower case, and no type beside a text.
fn plain(sql: &str) -> String {
    let pieces = sql.split('\'').enumerate();
    let lower = |(index, piece): (usize, &str)| {
        if index % 2 == 0 {
            piece.to_lowercase().replace("timestamp with time zone", "timestamptz")
        } else {
            piece.to_owned()
        }
    };
    let sql = pieces.map(lower).collect::<Vec<_>>().join("'");
    sql.replace("'::text", "'").replace(" on only ", " on ").replace(" using btree ", " ")
}

/// Words on lines of the page's width.
fn wrapped(first: &str, next: &str, text: &str) -> String {
    let (mut lines, mut line) = (String::new(), first.to_owned());
    for (index, word) in text.split_whitespace().enumerate() {
        if index > 0 && line.len() + 1 + word.len() > WIDTH {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = next.to_owned() + word;
        } else {
            if index > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines + line.trim_end() + "\n"
}
