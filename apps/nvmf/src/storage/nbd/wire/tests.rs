use super::*;

#[test]
fn requests_are_the_bytes_of_the_protocol() {
    let request = Request {
        command: Command::WriteZeroes,
        flags: command_flag::FUA | command_flag::NO_HOLE,
        cookie: 0x0102_0304_0506_0708,
        offset: 0x1112_1314_1516_1718,
        length: 0x2122_2324,
    };
    let bytes = [
        0x25, 0x60, 0x95, 0x13, 0, 3, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
        0x21, 0x22, 0x23, 0x24,
    ];
    assert_eq!(request.encode(), bytes);
    let mut out = Vec::new();
    put_go(&mut out, "ab");
    let go = [&b"IHAVEOPT"[..], &[0, 0, 0, 7, 0, 0, 0, 10, 0, 0, 0, 2, b'a', b'b', 0, 1, 0, 3]].concat();
    assert_eq!(out, go);
}

#[test]
fn a_greeting_is_answered_by_the_flags_that_both_know() {
    for (flags, answer) in [(0b11, Ok([0, 0, 0, 3])), (0b1, Ok([0, 0, 0, 1])), (0xffff, Ok([0, 0, 0, 3]))] {
        let mut bytes = *b"NBDMAGICIHAVEOPT\0\0";
        bytes[16..].copy_from_slice(&u16::to_be_bytes(flags));
        assert_eq!(greeting(&bytes), answer);
    }
    assert_eq!(greeting(b"NBDMAGICIHAVEOPT\0\0"), Err(NbdBreach::NotFixedNewstyle));
    assert_eq!(greeting(b"NBDMAGICIHAVEOP\0\0\0"), Err(NbdBreach::NotNbd));
    assert_eq!(greeting(b"HTTP/1.1 200 OK\r\n\r"), Err(NbdBreach::NotNbd));
}

#[test]
fn options_are_answered_as_the_protocol_says() {
    let reply = |option: u32, kind: u32, length: u32| {
        let mut bytes = [0; OPTION_REPLY_BYTES];
        bytes[..8].copy_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        for (at, number) in [option, kind, length].into_iter().enumerate() {
            bytes[8 + at * 4..][..4].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    };
    assert_eq!(option_reply(&reply(7, 3, 12), 7), Ok((3, 12)));
    assert_eq!(option_reply(&reply(8, 3, 12), 7), Err(NbdBreach::Option(8)));
    assert_eq!(option_reply(&reply(7, 3, 5000), 7), Err(NbdBreach::Length { kind: 3, length: 5000 }));
    assert_eq!(option_reply(&[0; OPTION_REPLY_BYTES], 7), Err(NbdBreach::Magic(0)));
    assert_eq!(option_data(1, &[]), Ok(OptionReply::Ack));
    assert_eq!(option_data(1, &[0]), Err(NbdBreach::Length { kind: 1, length: 1 }));
    let export = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 5];
    assert_eq!(option_data(3, &export), Ok(OptionReply::Export(1 << 16, 0x105)));
    for wrong in [&export[..11], &[0][..], &[], &[0, 3, 0, 0], &[0, 0, 0]] {
        assert_eq!(option_data(3, wrong), Err(NbdBreach::Length { kind: 3, length: wrong.len() as u32 }));
    }
    assert_eq!(option_data(3, &[0, 9]), Ok(OptionReply::Other));
    assert_eq!(option_data(77, &[1]), Ok(OptionReply::Other));
    for (number, refusal) in [
        (1, OptionRefusal::Unsupported),
        (5, OptionRefusal::TlsRequired),
        (6, OptionRefusal::UnknownExport),
        (9, OptionRefusal::Other(9)),
    ] {
        assert_eq!(option_data(1 << 31 | number, b"a"), Ok(OptionReply::Refused(refusal, b"a")));
    }
}

#[test]
fn sizes_that_contradict_each_other_are_refused() {
    for (minimum, preferred, maximum, good) in [
        (1, 512, 1 << 20, true),
        (1, 1, 1, true),
        (1 << 16, 1 << 16, u32::MAX, true),
        (512, 4096, 4097, true),
        (0, 512, 1 << 20, false),
        (3, 512, 1 << 20, false),
        (1 << 17, 1 << 17, 1 << 20, false),
        (4096, 512, 1 << 20, false),
        (512, 513, 1 << 20, false),
        (512, 4096, 4095, false),
    ] {
        assert_eq!(Blocks::new(minimum, preferred, maximum).is_ok(), good, "{minimum} {preferred} {maximum}");
    }
}

fn chunk_bytes(flags: u16, kind: u16, length: u32, payload: &[u8]) -> Vec<u8> {
    let header = [&CHUNK_MAGIC.to_be_bytes()[..], &flags.to_be_bytes(), &kind.to_be_bytes(), &7_u64.to_be_bytes()];
    [&header.concat(), &length.to_be_bytes()[..], payload].concat()
}

#[test]
fn beginnings_of_replies_are_decoded_once_they_are_all_there() {
    let simple = [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &[0, 0, 0, 5], &7_u64.to_be_bytes()].concat();
    let offset = 9_u64.to_be_bytes();
    let of = |is_last, chunk| Reply::Chunk { cookie: 7, is_last, chunk };
    for (bytes, reply_to) in [
        (simple, Reply::Simple { cookie: 7, error: 5 }),
        (chunk_bytes(1, 0, 0, &[]), of(true, Chunk::End)),
        (chunk_bytes(0, 1, 10, &offset), of(false, Chunk::Data { offset: 9, bytes: 2 })),
        (chunk_bytes(3, 2, 12, &[&offset[..], &[0, 0, 0, 4]].concat()), of(true, Chunk::Hole { offset: 9, bytes: 4 })),
        (chunk_bytes(1, 0x8001, 8, &[0, 0, 0, 5, 0, 2]), of(true, Chunk::Error { error: 5, rest: 2 })),
        (chunk_bytes(0, 0x8002, 14, &[0, 0, 0, 5, 0, 0]), of(false, Chunk::Error { error: 5, rest: 8 })),
        (chunk_bytes(0, 0xffff, 6, &[0, 0, 0, 1, 0, 0]), of(false, Chunk::Error { error: 1, rest: 0 })),
    ] {
        for length in 0..bytes.len() {
            assert_eq!(reply(&bytes[..length], true), Ok(None));
        }
        assert_eq!(reply(&bytes, true), Ok(Some((reply_to, bytes.len()))));
        assert!(bytes.len() <= MAX_REPLY_BYTES);
    }
}

#[test]
fn what_no_reply_begins_with_is_refused() {
    let wrong = |kind: u16, length| NbdBreach::Length { kind: kind.into(), length };
    for (bytes, breach) in [
        (vec![0; 4], NbdBreach::Magic(0)),
        (chunk_bytes(0, 0, 0, &[]), NbdBreach::Chunk(0)),
        (chunk_bytes(1, 0, 1, &[0]), wrong(0, 1)),
        (chunk_bytes(1, 1, 8, &[0; 8]), wrong(1, 8)),
        (chunk_bytes(1, 1, 0, &[0; 8]), wrong(1, 0)),
        (chunk_bytes(1, 2, 13, &[0; 13]), wrong(2, 13)),
        (chunk_bytes(1, 2, 12, &[0; 12]), NbdBreach::Data { offset: 0, bytes: 0 }),
        (chunk_bytes(1, 5, 12, &[0; 12]), NbdBreach::Chunk(5)),
        (chunk_bytes(1, 0x8001, 5, &[0; 6]), wrong(0x8001, 5)),
        (chunk_bytes(1, 0x8001, u32::MAX, &[0; 6]), wrong(0x8001, u32::MAX)),
        (chunk_bytes(1, 0x8001, 6, &[0; 6]), NbdBreach::NoError),
        (chunk_bytes(1, 0x8001, 6, &[0, 0, 0, 5, 0, 1]), wrong(0x8001, 6)),
    ] {
        assert_eq!(reply(&bytes, true), Err(breach));
    }
    assert_eq!(reply(&chunk_bytes(1, 0, 0, &[]), false), Err(NbdBreach::Style));
}
