//! Fuzzes performatives: decoded, encoded and decoded again they are equal.

use ephor_amqp::performative::Performative;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok((performative, end)) = Performative::read(data) else { return };
    assert!(end <= data.len());
    let Some(written) = write(&performative) else { return };
    let (again, end) = Performative::read(&written).expect("a written value can be read");
    assert_eq!((&again, end), (&performative, written.len()));
    assert_eq!(write(&again).as_ref(), Some(&written));
}

/// Writes a performative; none for a transfer, which a connection writes together with its payload.
fn write(performative: &Performative<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let into = &mut bytes;
    match performative {
        Performative::Open(open) => open.write(into),
        Performative::Begin(begin) => begin.write(into),
        Performative::Attach(attach) => attach.write(into),
        Performative::Flow(flow) => flow.write(into),
        Performative::Transfer(_) => return None,
        Performative::Disposition(disposition) => disposition.write(into),
        Performative::Detach(detach) => detach.write(into),
        Performative::End(end) => end.write(into),
        Performative::Close(close) => close.write(into),
    }
    Some(bytes)
}
