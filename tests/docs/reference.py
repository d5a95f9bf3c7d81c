"""The pages below docs/reference, made of what the program says of itself."""

import json
import re
import subprocess

NOTE = "<!-- Made by ./dev docs; changes by hand are refused by the tests. -->\n"


def pages(instance, root):
    """Every page by its path below the root of the repository."""
    return {
        "docs/reference/cli.md": cli(instance),
        "docs/reference/http.md": http(json.loads((root / "crates/server/src/openapi.json").read_text())),
        "docs/reference/sql.md": sql(instance, root),
    }


# The command line

def cli(instance):
    out = [f"# Command line\n\n{NOTE}"]
    out.append(
        "What `-h` says of every command. All of them take the [settings](../settings.md) as flags, and `--json`; "
        "those that run a server list them. Codes: 0 fine, 1 failed, 2 bad usage, 3 something to do, 4 failures found.\n"
    )
    tree = list(commands(instance, []))
    out += [f"- [`towpath {' '.join(path)}`](#{anchor('towpath ' + ' '.join(path))})" for path, _ in tree if len(path) == 1]
    for path, text in tree:
        level = "##" if len(path) == 1 else "###"
        out.append(f"\n{level} towpath {' '.join(path)}\n\n```text\n{text}\n```")
    return "\n".join(out) + "\n"


def commands(instance, path):
    """Each command below `path` and its help, in the order of the help."""
    text = helped(instance, path)
    if path:
        yield path, text.removesuffix("\n\nOptions:\n").strip()
    # The first screen has its commands in groups.
    listed = re.search(r"\nCommands:\n((?:  .*\n)+)" if path else r"\nUsage: [^\n]*\n(.*?)\nOptions:\n", text, flags=0 if path else re.S)
    for line in listed.group(1).splitlines() if listed else []:
        name = re.match(r"  ([a-z][a-z0-9-]*)(?:  |$)", line)
        if name and name.group(1) != "help":
            yield from commands(instance, [*path, name.group(1)])


def helped(instance, path):
    done = subprocess.run(["towpath", *path, "-h"], cwd=instance.dir, env=instance.env, capture_output=True, text=True, check=True)
    text = re.sub(r"\n\nSettings:\n.*", "", done.stdout, flags=re.S) + "\n"
    text = re.sub(r"\n  (-h, --help|    --json) .*", "", text)
    return re.sub(r"\n\nOptions:\n(?=\n|$)", "\n", text)


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# HTTP

def http(document):
    out = [f"# HTTP\n\n{NOTE}", document["info"]["description"] + "\n"]
    out.append("A running server has all of this as an OpenAPI 3.1 document, with every schema, at `/api/openapi.json`.\n")
    for name, scheme in document["components"]["securitySchemes"].items():
        out.append(f"- `{name}`: {scheme['description']}")
    out.append("\n## Refusals\n\n| status | |\n|---|---|")
    answers = {s: found(document, a) for i in document["paths"].values() for m, o in i.items() if m != "parameters"
               for s, a in o["responses"].items() if a.get("$ref", "").split("/")[-1] not in ("", "WokenRefusal")}
    out += [f"| {status} | {answer['description']} |" for status, answer in sorted(answers.items())]
    for tag in document["tags"]:
        out.append(f"\n## {tag['name'].capitalize()}\n\n{tag['description']}")
        for path, item in document["paths"].items():
            for method, operation in item.items():
                if method != "parameters" and tag["name"] in operation["tags"]:
                    out.append(endpoint(document, path, method, item, operation))
    return "\n".join(out) + "\n"


def endpoint(document, path, method, item, operation):
    out = [f"\n### {method.upper()} {path}\n\n{operation['summary']} {operation.get('description', '')}".rstrip()]
    tokens = [name for scheme in operation["security"] for name in scheme]
    out.append("\n" + (f"Token: `{tokens[0]}`." if tokens else "Needs no token."))
    given = [found(document, parameter) for parameter in item.get("parameters", []) + operation.get("parameters", [])]
    rows = [(f"`{p['name']}`", p["in"], shape(document, p["schema"]), p.get("description", "")) for p in given]
    if "requestBody" in operation:
        media = operation["requestBody"]["content"]
        if list(media) == ["application/json"]:
            rows += fields(document, media["application/json"]["schema"])
        else:
            rows.append(("", "body", "any media type", ""))
    if rows:
        out.append("\n| name | in | is | |\n|---|---|---|---|")
        out += [f"| {name} | {where} | {kind} | {text} |" for name, where, kind, text in rows]
    out.append("\n| status | |\n|---|---|")
    refusals = [status for status, answer in operation["responses"].items() if "$ref" in answer]
    for status, answer in operation["responses"].items():
        if status in refusals:
            continue
        content = list(answer.get("content", {}).values())
        names = property_names(document, content[0].get("schema", {})) if content else ""
        out.append(f"| {status} | {answer['description']}{names} |")
    if refusals:
        out.append(f"| {', '.join(refusals)} | [refused](#refusals) |")
    return "\n".join(out)


def found(document, item):
    while "$ref" in item:
        name = item["$ref"].split("/")
        item = document[name[1]][name[2]][name[3]]
    return item


def fields(document, schema):
    schema = found(document, schema)
    if "oneOf" in schema:
        return [("", "body", f"`{{{', '.join(found(document, one)['properties'])}}}`", one.get("title", "")) for one in schema["oneOf"]]
    required = schema.get("required", [])
    rows = []
    for name, property in schema.get("properties", {}).items():
        text = property.get("description", "")
        rows.append((f"`{name}`", "body", shape(document, property) + (", required" if name in required else ""), text))
    return rows


def shape(document, schema):
    """A schema in a few words."""
    if "$ref" in schema:
        name, schema = schema["$ref"].split("/")[-1], found(document, schema)
        if schema.get("type") == "object" or "oneOf" in schema:
            return name
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(shape(document, one) for one in schema["anyOf"])
    kind = schema.get("type", "any value")
    kinds = [kind] if isinstance(kind, str) else [word for word in kind if word != "null"]
    text = schema.get("format", kinds[0]) if kinds[0] == "string" else kinds[0]
    if kinds[0] == "array":
        text = f"array of {shape(document, schema['items'])}"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None and high < 2**31 - 1:
        text += f" {low:,} to {high:,}"
    if "default" in schema:
        text += f", else `{json.dumps(schema['default'])}`"
    return text


def property_names(document, schema):
    schema = found(document, schema)
    names = list(schema.get("properties", {}))
    return f" `{{{', '.join(names)}}}`" if names else ""


# SQL

FUNCTIONS = """
select json_agg(x order by x.schema, x.name, x.arguments) from (
    select n.nspname as schema, p.proname as name, pg_get_function_arguments(p.oid) as arguments,
           pg_get_function_result(p.oid) as result,
           (select json_agg(distinct case when a.grantee = 0 then 'everybody' else a.grantee::regrole::text end)
              from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
             where a.grantee <> p.proowner) as roles
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace
     where n.nspname in ('towpath', 'comms')) x
 where x.roles is not null"""

RELATIONS = """
select json_agg(x order by x.schema, x.name) from (
    select n.nspname as schema, c.relname as name, case when c.relkind = 'v' then 'view' else 'table' end as kind,
           (select json_agg(a.attname order by a.attnum) from pg_attribute a
             where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
           (select json_agg(distinct case when a.grantee = 0 then 'everybody' else a.grantee::regrole::text end)
              from aclexplode(c.relacl) a where a.grantee <> c.relowner and a.privilege_type = 'SELECT') as roles
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname in ('towpath', 'comms') and c.relkind in ('v', 'r', 'p') and not c.relispartition) x
 where x.roles is not null"""


def sql(instance, root):
    files = sources(root)
    out = [f"# SQL\n\n{NOTE}"]
    out.append(
        "All access is through functions: only the owner can write to a table. Each function is granted by name; `everybody` "
        "is every login. Functions return jsonb, `{ok: true, …}` or `{ok: false, error, …}`; "
        "[sql/README.md](../../sql/README.md#refusal-codes) lists the refusal codes. Functions that begin with `_` are private "
        "and not listed.\n"
    )
    functions, relations = query(instance, FUNCTIONS), query(instance, RELATIONS)
    functions = [f for f in functions if not f["name"].startswith("_")]
    groups = {}
    for function in functions:
        file, comment = files.get(f"{function['schema']}.{function['name']}", ("migrations", ""))
        groups.setdefault(file, []).append((function, comment))
    out += [f"- [{title(file)}](#{anchor(title(file))})" for file in sorted(groups)]
    out.append("- [Views and tables to read](#views-and-tables-to-read)")
    for file in sorted(groups):
        out.append(f"\n## {title(file)}")
        for function, comment in groups[file]:
            name = f"{function['schema']}.{function['name']}"
            out.append(f"\n### `{name}`\n\n```sql\n{signature(name, function)}\n```\n")
            if comment:
                out.append(comment + "\n")
            out.append(f"May call it: {roles(function)}.")
    out.append("\n## Views and tables to read")
    for relation in relations:
        name = f"{relation['schema']}.{relation['name']}"
        _, comment = files.get(name, ("", ""))
        out.append(f"\n### `{name}`\n")
        if comment:
            out.append(comment + "\n")
        out.append(f"Columns: {', '.join('`' + column + '`' for column in relation['columns'])}.\n")
        out.append(f"May read it: {roles(relation)}.")
    return "\n".join(out) + "\n"


def query(instance, text):
    done = subprocess.run(
        ["towpath", "db", "psql", "--", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", text],
        cwd=instance.dir, env=instance.env, capture_output=True, text=True, check=True,
    )
    return json.loads(done.stdout) or []


def sources(root):
    """Where each function and view is written, and the comment above it."""
    found = {}
    for file in sorted((root / "sql").glob("*/*.sql")):
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            made = re.match(r"create (?:or replace )?(?:function|view|table) ((?:towpath|comms)\.\w+)", line)
            if made:
                first = number
                while first > 0 and lines[first - 1].startswith("--"):
                    first -= 1
                folder = file.stem if file.parent.name == "functions" else file.parent.name
                found[made.group(1)] = (folder, prose(lines[first:number]))
    return found


def prose(lines):
    """A comment of SQL as paragraphs, without its own name and the ids of requirements."""
    text = "\n".join(line[2:].removeprefix(" ") for line in lines)
    text = re.sub(r"^\w+: ", "", text)
    text = re.sub(r" \((?:[A-Z]\d\d(?:, | and )?)+\)", "", text)
    # What is indented by four is an example.
    escaped = (line if line.startswith("    ") else re.sub(r"([_*<|])", r"\\\1", line)
               for line in (text[:1].upper() + text[1:]).splitlines())
    return "\n".join(escaped)


def signature(name, function):
    arguments = function["arguments"]
    line = f"{name}({arguments}) returns {function['result']}"
    if len(line) <= 110:
        return line
    # Between arguments, not inside of a default.
    split = re.split(r", (?=(?:OUT |VARIADIC )?\w+ [a-z])", arguments)
    return f"{name}(\n    " + ",\n    ".join(split) + f") returns {function['result']}"


def roles(thing):
    return ", ".join(f"`{role}`" if role != "everybody" else role for role in thing["roles"])


def title(file):
    return file.replace("_", " ").capitalize()
