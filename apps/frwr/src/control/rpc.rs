//! JSON-RPC 2.0 as values: what a client calls, and what it is answered.

use serde_json::{Map, Value, json};

/// Requests of a batch: each may ask all cores.
const MAX_BATCH: usize = 64;

/// No JSON.
pub(crate) const PARSE_ERROR: i64 = -32700;
/// JSON, and no request.
pub(crate) const INVALID_REQUEST: i64 = -32600;
/// There is no such method.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The method takes no such parameters.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// A defect of this program.
pub(crate) const INTERNAL: i64 = -32603;
/// The request is larger than a request may be.
pub(crate) const TOO_LARGE: i64 = -32001;
/// The answer is larger than an answer may be.
pub(crate) const ANSWER_TOO_LARGE: i64 = -32002;
/// A core has not answered in time; nothing was changed.
pub(crate) const TIMED_OUT: i64 = -32003;
/// The target cannot do it; nothing was changed.
pub(crate) const NOT_DONE: i64 = -32004;

/// Of several changes some were made, and then one could not be.
pub(crate) const PARTLY_DONE: i64 = -32005;

/// Why a call has no result: the number says which kind, the text names limit, value and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn json(&self) -> Value {
        json!({ "code": self.code, "message": self.message })
    }
}

/// What one request asks for. Without `id` it is a notification, which is never answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: Option<Value>,
    pub(crate) method: String,
    pub(crate) parameters: Map<String, Value>,
}

/// A request that cannot be carried out, and its id where that could be read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wrong {
    pub(super) id: Value,
    pub(super) failure: Failure,
}

/// One request, or several that are answered together.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    Single(Result<Call, Wrong>),
    Batch(Vec<Result<Call, Wrong>>),
}

/// What a whole value says.
pub(super) fn read(bytes: &[u8]) -> Message {
    match serde_json::from_slice(bytes) {
        Err(error) => {
            let failure = Failure::new(PARSE_ERROR, format!("no JSON: {error}; send JSON-RPC 2.0"));
            Message::Single(Err(Wrong { id: Value::Null, failure }))
        }
        Ok(Value::Array(all)) if all.is_empty() || all.len() > MAX_BATCH => {
            let text = format!("a batch of {} requests: must be from 1 to {MAX_BATCH}; send several", all.len());
            Message::Single(Err(Wrong { id: Value::Null, failure: Failure::new(INVALID_REQUEST, text) }))
        }
        Ok(Value::Array(all)) => Message::Batch(all.into_iter().map(call).collect()),
        Ok(one) => Message::Single(call(one)),
    }
}

fn call(value: Value) -> Result<Call, Wrong> {
    let wrong = |id: &Value, what: &str| {
        let failure = Failure::new(INVALID_REQUEST, format!("{what}; see JSON-RPC 2.0"));
        Err(Wrong { id: id.clone(), failure })
    };
    let Value::Object(mut members) = value else { return wrong(&Value::Null, "a request is an object") };
    let id = match members.remove("id") {
        None => None,
        Some(id @ (Value::Null | Value::Number(_) | Value::String(_))) => Some(id),
        Some(_) => return wrong(&Value::Null, "id: must be text, a number or null"),
    };
    let known = id.clone().unwrap_or_default();
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return wrong(&known, "jsonrpc: must be \"2.0\"");
    }
    let Some(Value::String(method)) = members.remove("method") else {
        return wrong(&known, "method: must be text");
    };
    match members.remove("params") {
        None => Ok(Call { id, method, parameters: Map::new() }),
        Some(Value::Object(parameters)) => Ok(Call { id, method, parameters }),
        Some(Value::Array(all)) if all.is_empty() => Ok(Call { id, method, parameters: Map::new() }),
        Some(Value::Array(_)) => {
            let text = format!("params: {method} takes its parameters by name; send an object");
            Err(Wrong { id: known, failure: Failure::new(INVALID_PARAMS, text) })
        }
        Some(_) => wrong(&known, "params: must be an object"),
    }
}

/// The answer of one request.
pub(super) fn answer(id: Value, result: Result<Value, Failure>) -> Value {
    match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(failure) => json!({ "jsonrpc": "2.0", "id": id, "error": failure.json() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(text: &str) -> Result<Call, (Value, i64)> {
        let Message::Single(result) = read(text.as_bytes()) else { panic!("{text}: a batch") };
        result.map_err(|wrong| (wrong.id, wrong.failure.code))
    }

    #[test]
    fn requests_and_notifications_are_told_apart_by_their_id() {
        let call = single(r#"{"jsonrpc":"2.0","id":7,"method":"cores","params":{"a":1}}"#).unwrap();
        assert_eq!((call.id, call.method.as_str(), call.parameters.len()), (Some(json!(7)), "cores", 1));
        assert_eq!(single(r#"{"jsonrpc":"2.0","method":"cores","params":[]}"#).unwrap().id, None);
        assert_eq!(single(r#"{"jsonrpc":"2.0","id":null,"method":"cores"}"#).unwrap().id, Some(Value::Null));
    }

    #[test]
    fn what_is_no_request_is_told_by_number_and_keeps_its_id() {
        for (text, id, code) in [
            ("{", Value::Null, PARSE_ERROR),
            (r#"{"id":1,}"#, Value::Null, PARSE_ERROR),
            ("[]", Value::Null, INVALID_REQUEST),
            (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, json!(1), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":"a"}"#, json!("a"), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, json!(1), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"x"}"#, Value::Null, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":3}"#, json!(1), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[3]}"#, json!(1), INVALID_PARAMS),
        ] {
            assert_eq!(single(text), Err((id, code)), "{text}");
        }
        let many = format!("[{}]", vec!["1"; MAX_BATCH + 1].join(","));
        assert_eq!(single(&many), Err((Value::Null, INVALID_REQUEST)));
    }

    #[test]
    fn a_batch_has_an_answer_for_each_of_its_parts() {
        let Message::Batch(parts) = read(br#"[1,{"jsonrpc":"2.0","method":"x"}]"#) else { panic!() };
        assert!(parts[0].is_err() && parts[1].is_ok());
    }
}
