use super::*;

const LIMITS: Limits =
    Limits { depth_max: 20, values_max: 1000, repeated_bytes_max: 4000, directives_max: 3 };

fn shown(text: &str) -> String {
    let mut nodes = Nodes::default();
    match read(text.as_bytes(), &LIMITS, &mut nodes) {
        Ok(document) => json(&document.value),
        Err(Refusal::Text(text)) => text,
        Err(refusal) => format!("{refusal:?}"),
    }
}

fn json(value: &Value) -> String {
    match value {
        Value::Scalar(Scalar::Null) => "null".to_owned(),
        Value::Scalar(Scalar::Bool(is_true)) => is_true.to_string(),
        Value::Scalar(Scalar::Int(number)) => number.to_string(),
        Value::Scalar(Scalar::Unsigned(number)) => number.to_string(),
        Value::Scalar(Scalar::Float(number)) => format!("{number:?}"),
        Value::Scalar(Scalar::Text(text)) => format!("{text:?}"),
        Value::List(items) => format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let shown: Vec<String> =
                members.iter().map(|(name, value)| format!("{name:?}:{}", json(value))).collect();
            format!("{{{}}}", shown.join(","))
        }
    }
}

#[test]
fn the_first_document_is_read() {
    assert_eq!(shown(""), "null");
    assert_eq!(
        shown("---\nb: [1, ~]\na: {x: 1.0, z: 1.5}\n---\n{"),
        r#"{"a":{"x":1,"z":1.5},"b":[1,null]}"#
    );
}

#[test]
fn later_members_replace_earlier_ones() {
    assert_eq!(shown("{a: 1, 'true': 2, yes: 3, a: 4}"), r#"{"a":4,"true":3}"#);
    let mut nodes = Nodes::default();
    let document = read(b"a: 1\na: 2\n'1': 3\n1: 4", &LIMITS, &mut nodes);
    let repeated = document.map(|document| document.repeated);
    assert_eq!(repeated, Ok(vec![(2, Scalar::Text("a".into()))]));
}

#[test]
fn mappings_are_merged() {
    let text = "a: &a {x: 1, w: 2}\nb: &b {x: 3}\nc: {<<: [*a, *b], z: 4}\nd: {x: 9, <<: *a}\n";
    assert_eq!(
        shown(text),
        r#"{"a":{"w":2,"x":1},"b":{"x":3},"c":{"w":2,"x":1,"z":4},"d":{"w":2,"x":1}}"#
    );
}

#[test]
fn what_is_refused_is_named() {
    for (text, refusal) in [
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("a:\n\tb: c", "yaml: line 2: found character that cannot start any token"),
        ("a: [b\n", "yaml: line 1: did not find expected ',' or ']'"),
        ("a: *x", "yaml: unknown anchor 'x' referenced"),
        ("a: &x [*x]", "yaml: anchor 'x' value contains itself"),
        ("<<: 1", NO_MERGE),
        ("a: .nan", "json: unsupported value: NaN"),
        ("a\u{1}", "yaml: control characters are not allowed"),
        ("{a: &a [x], b: {*a : 1}}", r#"InvalidKey(List([Scalar(Text("x"))]))"#),
        ("~: b", r#"UnsupportedKey(Null, Scalar(Text("b")))"#),
    ] {
        assert_eq!(shown(text), refusal, "{text}");
    }
}

const NO_MERGE: &str = "yaml: map merge requires map or sequence of maps as the value";

#[test]
fn everything_has_a_limit() {
    assert_eq!(shown(&"[".repeat(21)), "yaml: line 1: exceeded max depth of 20");
    assert_eq!(shown(&format!("[{}]", "a,".repeat(3000))), "Count(1001)");
    let aliases = format!("[&a [{}], {}]", "a,".repeat(99), "*a,".repeat(30));
    assert_eq!(shown(&aliases), "Count(1001)");
    let excessive = "yaml: document contains excessive aliasing";
    let text = format!("[&a {}, {}]", "b".repeat(1000), "*a,".repeat(5));
    assert_eq!(shown(&text), excessive);
    let directives = |count| (0..count).map(|n| format!("%TAG !{n}! a\n")).collect::<String>();
    assert_eq!(shown(&(directives(3) + "--- a")), r#""a""#);
    assert_eq!(shown(&(directives(4) + "--- a")), "yaml: a document may have at most 3 directives");
}
