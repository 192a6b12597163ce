//! The asynchronous client: `cell dev` in one terminal, then
//! `cargo run -p cell-client --features aio --example aio -- 127.0.0.1:7000`.

use cell_client::aio::Client;
use cell_client::{ClientOptions, ScanRange};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let client = Client::connect(&server, ClientOptions::default()).await?;

    // A hundred writes at once: they share connections, and their batch on the server's disk.
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..100 {
        let client = client.clone();
        writes.spawn(async move { client.put(format!("number/{number:03}").as_bytes(), b"1").await });
    }
    while let Some(written) = writes.join_next().await {
        written??;
    }

    let mut entries = client.scan(ScanRange::prefix(b"number/"));
    let mut count = 0;
    while let Some(entry) = entries.next().await {
        entry?;
        count += 1;
    }
    println!("{count} entries");
    client.close().await;
    Ok(())
}
