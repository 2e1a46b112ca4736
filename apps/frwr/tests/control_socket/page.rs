//! The page of the metrics port, in Chromium without a screen.

use super::{HOST, SUBSYSTEM, Target};
use std::{env, fs::File, io::BufReader, path::Path, process::Command};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// The page's own time that passes: enough for several readings. Virtual time stands still while an answer is on its way.
const TIME: &str = "--virtual-time-budget=6000";
/// Points of a telephone.
const TELEPHONE: [u32; 2] = [390, 2400];
const DESK: [u32; 2] = [1280, 1000];

/// A browser, or why there is none.
fn browser() -> Option<&'static str> {
    let found = BROWSERS.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        println!("SKIPPED: no Chromium to look at the page with; apt-get install chromium");
        assert!(env::var_os("CI").is_none_or(|value| value != "true"), "SKIPPED under CI");
    }
    found
}

/// Looks at the page by a window of this size; what the browser prints.
fn look(browser: &str, target: &Target, [width, height]: [u32; 2], more: &[&str]) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", TIME])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},{height}"))
        .args(more)
        .arg(format!("http://{}/", target.metrics))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("CONSOLE"), "a script failed: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Brightness (0 to 255) of each pixel of a column of a picture.
fn column(picture: &Path, at: usize) -> Vec<u32> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(picture).unwrap())).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    let samples = frame.color_type.samples();
    let brightness = |row: &[u8]| row[at * samples..][..3].iter().map(|part| u32::from(*part)).sum::<u32>() / 3;
    pixels[..frame.buffer_size()].chunks(frame.line_size).map(brightness).collect()
}

#[test]
fn the_page_draws_what_the_target_does() {
    let Some(browser) = browser() else { return };
    let target = Target::start(2);
    let host = target.host("3600");
    target.client().until("status", |status| status["bytes_read"].as_u64() > Some(1 << 20));
    let page = look(browser, &target, DESK, &["--dump-dom"]);
    for told in [
        SUBSYSTEM,
        HOST,
        "running",
        "127.0.0.1:4420 listens",
        "reactor 1",
        "ready",
        "Commands per second",
        "Latency in the target",
        "p99 up to",
        "Errors and stalls",
    ] {
        assert!(page.contains(told), "{told} is missing: {page}");
    }
    // Of which each needs two readings.
    assert!(page.matches("<polyline").count() >= 5, "{page}");
    host.end().unwrap();
    target.end();
}

#[test]
fn the_page_is_light_or_dark_as_its_reader_has_it_and_fits_a_telephone() {
    let Some(browser) = browser() else { return };
    let (target, folder) = (Target::start(1), tempfile::tempdir().unwrap());
    for (name, scheme, is_right) in [
        ("light.png", "1", (|brightness| brightness > 200) as fn(u32) -> bool),
        ("dark.png", "0", |brightness| brightness < 60),
    ] {
        let picture = folder.path().join(name);
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        look(browser, &target, TELEPHONE, &[&scheme, &format!("--screenshot={}", picture.display())]);
        let edge = column(&picture, TELEPHONE[0] as usize - 4);
        assert!(is_right(edge[0]), "{name}: {}", edge[0]);
        assert!(edge.iter().all(|brightness| *brightness == edge[0]), "{name}: something reaches into the margin");
    }
    target.end();
}

/// What nobody can be asked of may not be there.
#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = include_str!("../../src/control/page.html");
    let is_own = |line: &&str| !line.contains("http://www.w3.org/2000/svg");
    assert!(!page.lines().filter(is_own).any(|line| line.contains("://") || line.contains("@import")));
}
