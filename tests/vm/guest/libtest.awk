# Turns the output of a Rust test binary into records. -v bin=NAME -v code=EXIT_CODE
#
# The name of a test is printed before it runs and its outcome after, so output that the test harness does not capture
# may stand between the two.
function outcome(text) {
    if (text ~ /ok$/) set("ok", "")
    else if (text ~ /FAILED$/) set("FAILED", "see " bin ".log")
    else if (match(text, /ignored(, .*)?$/)) set("skipped", substr(text, RSTART))
}
function set(result, why) {
    order[++n] = name
    results[name] = result
    details[name] = why
    name = ""
}
/^test [^ ]+ .*\.\.\. / || /^test [^ ]+ \.\.\. / {
    name = $2
    last = name
    outcome(substr($0, index($0, " ... ") + 5))
    next
}
/^test result: / {
    summary = 1
    for (i = 2; i <= NF; i++) {
        if ($i == "passed;") passed = $(i - 1)
        if ($i == "failed;") failed = $(i - 1)
        if ($i == "ignored;") ignored = $(i - 1)
    }
    next
}
/^---- [^ ]+ stdout ----$/ { section = $2; next }
# A test that could not do its work here passes and says so.
/^SKIPPED:/ && section in results && results[section] == "ok" {
    results[section] = "skipped"
    details[section] = substr($0, 10)
    said_skipped++
    next
}
name != "" { outcome($0) }
END {
    for (i = 1; i <= n; i++) {
        count[results[order[i]]]++
        print results[order[i]], bin "::" order[i], details[order[i]]
    }
    if (!summary) {
        print "FAILED", bin, "died with exit code " code ", last test: " (last == "" ? "none" : last)
    } else if (count["ok"] + said_skipped != passed || count["FAILED"] != failed || count["skipped"] - said_skipped != ignored) {
        print "FAILED", bin, "its tests and its summary do not agree, see " bin ".log"
    } else if (code != 0 && failed == 0) {
        print "FAILED", bin, "all tests passed, but exit code " code
    }
}
