//! The topics of a journal on Kafka: making them, looking at them, and who may use them.

use crate::args::{Global, Kafka};
use crate::error::CliError;
use crate::output::Output;

#[cfg(not(feature = "kafka"))]
pub(crate) async fn run(_: &Global, _: Kafka, _: Output) -> Result<(), CliError> {
    Err(CliError::usage("this build has no feature kafka"))
}

#[cfg(feature = "kafka")]
pub(crate) use topics::run;

#[cfg(feature = "kafka")]
mod topics {
    use mainspring::eventlog::LogError;
    use mainspring::store_kafka::{
        self as store, Access, Finding, Genesis, KafkaConfig, NewTopics,
    };
    use serde_json::{Value, json};

    use super::{CliError, Global, Kafka, Output};
    use crate::args::{KafkaAcls, KafkaInit, KafkaVoidDigest};
    use crate::context::quoted;
    use crate::standing;

    pub(crate) async fn run(global: &Global, args: Kafka, output: Output) -> Result<(), CliError> {
        if global.server_flag {
            return Err(CliError::usage("kafka works on topics; it takes no --server"));
        }
        let config = config(global)?;
        match args {
            Kafka::Init(args) => init(&config, args, output).await,
            Kafka::Check { .. } => check(&config, output).await,
            Kafka::Acls(args) => {
                acls(&config, &args, output);
                Ok(())
            }
            Kafka::VoidDigest(args) => void_digest(&config, args, output).await,
        }
    }

    fn config(global: &Global) -> Result<KafkaConfig, CliError> {
        let journal = &global.config.journal;
        let rest = journal.strip_prefix("kafka:").ok_or_else(|| {
            CliError::usage("which topic? --journal kafka://HOST:PORT,HOST:PORT/TOPIC says it")
        })?;
        Ok(standing::factory(&global.config)?.config(rest)?)
    }

    async fn init(config: &KafkaConfig, args: KafkaInit, output: Output) -> Result<(), CliError> {
        let KafkaInit { partitions, replicas, in_sync_min, .. } = args;
        let begun = store::init(config, NewTopics { partitions, replicas, in_sync_min }).await?;
        let (made, of) = (begun.partitions, begun.genesis.partitions);
        output.line(
            || {
                let topics = match &begun.topics[..] {
                    [] => "none".to_owned(),
                    topics => topics.join(","),
                };
                let genesis = genesis_text(&begun.genesis);
                format!("topics_made={topics} partitions_begun={made}\n{genesis}")
            },
            || {
                json!({
                    "topics_made": begun.topics,
                    "partitions_begun": made,
                    "genesis": genesis_json(&begun.genesis),
                })
            },
        );
        if made == 0 && begun.topics.is_empty() {
            output.note("everything was there before");
        } else if made < of && made > 0 {
            output.note("the log was begun in part before, and is whole now");
        }
        // Topics that were there may have other settings than those made here.
        let report = store::check(config).await?;
        for fault in report.findings.iter().filter(|finding| !finding.holds) {
            output.line(|| finding_text(fault), || finding_json(fault));
        }
        report.halt().map_or(Ok(()), |halt| Err(LogError::from(halt).into()))
    }

    async fn check(config: &KafkaConfig, output: Output) -> Result<(), CliError> {
        let report = store::check(config).await?;
        for finding in &report.findings {
            output.line(|| finding_text(finding), || finding_json(finding));
        }
        let genesis = report.genesis.as_ref();
        output.line(
            || {
                let durability = report.durability;
                let genesis = genesis.map_or("FAULT no genesis".to_owned(), genesis_text);
                format!("durability {durability}\n{genesis}")
            },
            || {
                json!({
                    "durability": report.durability.class(),
                    "genesis": genesis.map(genesis_json),
                })
            },
        );
        report.halt().map_or(Ok(()), |halt| Err(LogError::from(halt).into()))
    }

    fn finding_text(finding: &Finding) -> String {
        let Finding { topic, setting, found, wanted, holds } = finding;
        match holds {
            true => format!("ok     {topic}  {setting} = {found}"),
            false => format!("FAULT  {topic}  {setting} = {found}, wanted: {wanted}"),
        }
    }

    fn finding_json(finding: &Finding) -> Value {
        let Finding { topic, setting, found, wanted, holds } = finding;
        json!({
            "topic": topic,
            "setting": setting,
            "found": found,
            "wanted": wanted,
            "holds": holds,
        })
    }

    fn genesis_text(genesis: &Genesis) -> String {
        let Genesis { store_id, cluster_id, partitions, level, .. } = genesis;
        let store_id = store_id.as_str();
        format!("store {store_id} partitions={partitions} rules={level} cluster={cluster_id}")
    }

    fn genesis_json(genesis: &Genesis) -> Value {
        json!({
            "store_id": genesis.store_id.as_str(),
            "partitions": genesis.partitions,
            "rules_level": genesis.level,
            "cluster_id": genesis.cluster_id,
        })
    }

    fn acls(config: &KafkaConfig, args: &KafkaAcls, output: Output) {
        for access in store::access(config) {
            let mut operations = access.operations.to_vec();
            if args.init {
                operations.extend(access.init_operations);
            }
            output.line(
                || acl_text(config, &args.principal, &access, &operations),
                || {
                    json!({
                        "principal": args.principal,
                        "topic": access.topic,
                        "operations": operations,
                    })
                },
            );
        }
    }

    fn acl_text(
        config: &KafkaConfig,
        principal: &str,
        access: &Access,
        operations: &[&str],
    ) -> String {
        let operations: String =
            operations.iter().map(|operation| format!(" --operation {operation}")).collect();
        format!(
            "kafka-acls.sh --bootstrap-server {} --add --allow-principal {}{operations} --topic {}",
            quoted(&config.brokers),
            quoted(principal),
            quoted(&access.topic)
        )
    }

    async fn void_digest(
        config: &KafkaConfig,
        args: KafkaVoidDigest,
        output: Output,
    ) -> Result<(), CliError> {
        let KafkaVoidDigest { partition, offset } = args;
        let partitions = store::check(config).await?.genesis.map_or(0, |it| it.partitions);
        if partition >= partitions {
            let message = format!("the log has {partitions} partitions, and no {partition}");
            return Err(CliError::usage(message));
        }
        store::void_digest(config, partition, offset).await?;
        output.line(
            || format!("voided the digest in message {offset} of partition {partition}"),
            || json!({"partition": partition, "offset": offset, "voided": true}),
        );
        Ok(())
    }
}
