//! Handlers that fetch the data their job names.

use towpath_db::job::NewJob;
use towpath_db::payload::NewPayload;
use towpath_model::payload::MasterKeys;
use towpath_testkit::queue::{EXECUTOR, Queue};
use towpath_worker::testing::run_until_drained;
use towpath_worker::{Failure, Options, Worker};

/// Q25: a handler gets what `payload_ref` names, decrypted, under the lease of its job; a job that names nothing stored
/// fails with that reason.
#[tokio::test]
async fn a_handler_gets_the_data_its_job_names() {
    let queue = Queue::open().await;
    let keys = || MasterKeys::parse("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap();
    let admin = queue.admin.clone().with_master_keys(keys());
    admin.payload_key_rotate("acme", "ann").await.unwrap();
    let data = br#"{"role": "user", "content": "hello"}"#;
    for project in ["acme", "default"] {
        let new = NewPayload { data, content_type: "application/json", project };
        let stored = admin.payload_put(new).await.unwrap();
        admin.enqueue(&NewJob::new("chat").payload_ref(stored.to_string())).await.unwrap();
    }
    admin.enqueue(&NewJob::new("chat").max_attempts(1)).await.unwrap();
    let worker = Worker::builder(queue.worker.clone().with_master_keys(keys()), EXECUTOR)
        .handle_kind("chat", Options::default(), |_: serde_json::Value, context| async move {
            let data: serde_json::Value = context.payload_data().await?.json()?;
            if data["content"] == "hello" { Ok(()) } else { Err(Failure::permanent(data)) }
        })
        .build()
        .unwrap();
    assert_eq!(run_until_drained(&worker).await.unwrap().len(), 3);
    assert_eq!(queue.states().await, "dead_letter 1, succeeded 2");
    let error = queue.db.text("select final_error from towpath.job_dead_letter").await;
    assert!(error.contains("references no stored payload"), "{error}");
}
