//! The blocking client: `cell dev` in one terminal, then
//! `cargo run -p cell-client --example blocking -- 127.0.0.1:7000`.

use cell_client::{Client, ClientOptions, Condition, ScanRange};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let mut client = Client::connect(&server, ClientOptions::default())?;

    let version = client.put(b"fruit/apple", b"green")?;
    client.put_if(b"fruit/pear", b"yellow", Condition::IfAbsent).or_else(|error| match error {
        cell_client::ClientError::ConditionFailed { current: Some(version) } => Ok(version),
        other => Err(other),
    })?;
    println!("apple has {version}, pear {:?}", client.get(b"fruit/pear")?.map(|item| item.version));

    for entry in client.scan(ScanRange::prefix(b"fruit/")) {
        let entry = entry?;
        println!("{} = {}", entry.key.escape_ascii(), entry.value.escape_ascii());
    }
    println!("deleted: {}", client.delete(b"fruit/apple")?);
    client.close();
    Ok(())
}
