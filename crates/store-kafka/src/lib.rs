//! Log store on Apache Kafka.
