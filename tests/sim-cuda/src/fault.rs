//! Faults on demand: `SIM_CUDA_FAULT=function:n:kind,…` makes the n-th call of a function fail, and
//! `SIM_CUDA_IGNORE=function:n,…` makes it succeed without doing anything, so that a test can show that a
//! program needs it.

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The call returns this code and does nothing.
    Code(u32),
    /// The call returns its library's code for a bad argument and does nothing.
    Invalid,
    /// Memory is short: the call returns its library's code for that.
    OutOfMemory,
    /// The device is lost now: this call and every later one fail.
    Lost,
    /// The call succeeds, its work loses the device when it runs.
    Late,
    /// The call succeeds, its work never ends.
    Hang,
}

#[derive(Clone, Debug)]
pub struct Fault {
    pub function: String,
    /// Which call, from 1.
    pub nth: u64,
    pub kind: Kind,
}

/// Kinds: oom, invalid, unsupported, unknown, lost, late, hang, or a number.
pub fn parse(text: &str) -> Result<Vec<Fault>, String> {
    let items = text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    items.map(one).collect()
}

fn one(item: &str) -> Result<Fault, String> {
    let wrong = || format!("sim-cuda: bad fault '{item}' (accepted: function:n:kind)");
    let mut parts = item.split(':');
    let (Some(function), Some(nth), Some(kind), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(wrong());
    };
    let kind = match kind {
        "oom" => Kind::OutOfMemory,
        "invalid" => Kind::Invalid,
        "unsupported" => Kind::Code(801),
        "unknown" => Kind::Code(12_345),
        "lost" => Kind::Lost,
        "late" => Kind::Late,
        "hang" => Kind::Hang,
        number => Kind::Code(number.parse().map_err(|_| wrong())?),
    };
    let nth = nth.parse().map_err(|_| wrong())?;
    Ok(Fault {
        function: function.to_owned(),
        nth,
        kind,
    })
}

/// Calls that can be ignored: those that only order work. A wait is not made, a recording happens at once,
/// a query says that everything has happened.
const IGNORABLE: [&str; 6] = [
    "cuStreamWaitEvent",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuStreamQuery",
    "cuStreamSynchronize",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignore {
    function: &'static str,
    /// The number of the event, if only its calls are counted.
    event: Option<u64>,
    /// Which call, from 1; every one if there is none.
    nth: Option<u64>,
}

impl Ignore {
    /// `event` is the number of the event whose calls were counted to `nth`; `None` for all calls.
    pub fn matches(&self, function: &str, event: Option<u64>, nth: u64) -> bool {
        self.function == function
            && self.event == event
            && self.nth.is_none_or(|wanted| wanted == nth)
    }
}

/// `function:n`, `function:every`, `function@event:n` or `function@event:every`, separated by commas.
pub fn parse_ignore(text: &str) -> Result<Vec<Ignore>, String> {
    let one = |item: &str| {
        let wrong = || {
            let functions = IGNORABLE.join(", ");
            format!(
                "sim-cuda: bad item '{item}' to ignore (accepted: function:n, function:every and \
                 function@event:n with {functions})"
            )
        };
        let (name, nth) = item.split_once(':').ok_or_else(wrong)?;
        let (name, event) = match name.split_once('@') {
            Some((name, event)) => (name, Some(event.parse().map_err(|_| wrong())?)),
            None => (name, None),
        };
        let function = IGNORABLE.into_iter().find(|&function| function == name);
        let nth = match nth {
            "every" => None,
            nth => Some(nth.parse().map_err(|_| wrong())?),
        };
        let function = function.ok_or_else(wrong)?;
        Ok(Ignore {
            function,
            event,
            nth,
        })
    };
    let items = text.split(',').map(str::trim);
    items.filter(|item| !item.is_empty()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_named_exactly() {
        let list = parse_ignore("cuStreamWaitEvent:3, cuEventQuery:every, cuEventRecord@7:2")
            .expect("well-formed");
        let ignored = |function, nth| list.iter().any(|item| item.matches(function, None, nth));
        assert!(ignored("cuStreamWaitEvent", 3) && !ignored("cuStreamWaitEvent", 2));
        assert!(ignored("cuEventQuery", 1) && ignored("cuEventQuery", 999));
        assert!(!ignored("cuEventRecord", 3) && !ignored("cuEventRecord", 2));
        let of_event = |event, nth| {
            let mut list = list.iter();
            list.any(|item| item.matches("cuEventRecord", Some(event), nth))
        };
        assert!(of_event(7, 2) && !of_event(7, 1) && !of_event(2, 7));
        for wrong in [
            "cuStreamWaitEvent",
            "cuMemFree_v2:1",
            "cuEventQuery:x",
            "cuEventQuery:1:2",
            "cuEventQuery@:1",
        ] {
            let message = parse_ignore(wrong).expect_err(wrong);
            assert!(
                message.contains(wrong) && message.contains("function:every"),
                "{message}"
            );
        }
    }
}
