//! Tests that the document's answers are the API's, both ways: see [`crate::api::conformity`].
