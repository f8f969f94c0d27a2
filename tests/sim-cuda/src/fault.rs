//! Faults on demand: `SIM_CUDA_FAULT=function:n:kind,…` makes the n-th call of a function fail.

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
