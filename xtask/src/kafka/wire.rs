//! As much of Kafka's protocol as it takes to ask a broker which brokers it knows.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The request that lists topics and brokers, in its last version with plain fields.
const METADATA: i16 = 3;
const METADATA_VERSION: i16 = 4;
/// What the answer must repeat.
const CORRELATION: i32 = 77;
/// How long a broker has to connect, and to answer.
const LIMIT: Duration = Duration::from_secs(2);
/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The numbers of the brokers that the one at `address` takes for alive, sorted.
pub(super) fn brokers(address: SocketAddr) -> Result<Vec<i32>> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(&request())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length))?;
    if length > ANSWER_BYTES_MAX {
        bail!("an answer of {length} bytes");
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    parse(&answer)
}

/// A question for the brokers and for no topic.
fn request() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(METADATA.to_be_bytes());
    body.extend(METADATA_VERSION.to_be_bytes());
    body.extend(CORRELATION.to_be_bytes());
    // No client id.
    body.extend((-1_i16).to_be_bytes());
    // An empty list of topics: none. An absent one would mean all of them.
    body.extend(0_i32.to_be_bytes());
    // No topic is created.
    body.push(0);
    let mut framed = i32::try_from(body.len()).expect("a short request").to_be_bytes().to_vec();
    framed.extend(body);
    framed
}

fn parse(answer: &[u8]) -> Result<Vec<i32>> {
    let mut rest = Reader(answer);
    if rest.int()? != CORRELATION {
        bail!("an answer to another request");
    }
    let _throttle_ms = rest.int()?;
    let mut brokers = Vec::new();
    for _ in 0..rest.int()? {
        brokers.push(rest.int()?);
        let _host = rest.string()?;
        let _port = rest.int()?;
        let _rack = rest.string()?;
    }
    brokers.sort_unstable();
    Ok(brokers)
}

/// Takes fields off the front of an answer.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).context("an answer that is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn int(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.take(4)?.try_into()?))
    }

    /// A string, or nothing where its length is -1.
    fn string(&mut self) -> Result<&'a [u8]> {
        let length = i16::from_be_bytes(self.take(2)?.try_into()?);
        self.take(usize::try_from(length).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Vec<u8> {
        let mut answer = Vec::new();
        answer.extend(CORRELATION.to_be_bytes());
        answer.extend(0_i32.to_be_bytes());
        answer.extend(2_i32.to_be_bytes());
        for (id, rack) in [(3_i32, None), (1, Some("r"))] {
            answer.extend(id.to_be_bytes());
            answer.extend([0, 4]);
            answer.extend(b"host");
            answer.extend(9092_i32.to_be_bytes());
            match rack {
                Some(rack) => {
                    answer.extend([0, 1]);
                    answer.extend(rack.as_bytes());
                }
                None => answer.extend([255, 255]),
            }
        }
        answer
    }

    #[test]
    fn a_request_has_the_length_that_it_states() {
        let request = request();
        assert_eq!(request.len() - 4, usize::from(request[3]));
        assert_eq!([0, 0, 0], request[..3]);
        assert_eq!([0, 3, 0, 4], request[4..8]);
    }

    #[test]
    fn brokers_are_read_and_sorted() {
        let mut bytes = answer();
        bytes.extend(b"the cluster and its topics follow");
        assert_eq!(vec![1, 3], parse(&bytes).unwrap());
    }

    #[test]
    fn damaged_answers_are_errors() {
        let bytes = answer();
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_err(), "{length} bytes");
        }
        let mut other = bytes;
        other[3] ^= 1;
        assert!(parse(&other).unwrap_err().to_string().contains("another request"));
    }
}
