// When to ask again. Pure: random numbers and times are arguments.
//
// Invariants: the client asks up to 5 % before the period that it was told has passed, and never after it by its own choice. It never
// tries again before `Retry-After` of Weir. No pause is longer than a day.

import Foundation

/// The longest time that a call may take, in milliseconds. It is also the longest back-off without a `Retry-After`.
let slowestMs = 15_000.0

/// The longest `Retry-After` of a reply that is not Weir's, in milliseconds: `slowestMs` with the quarter that is added to it. Whoever sends
/// it does not know that a silent place is lost.
let longestAwayMs = slowestMs / 1.25

/// The longest pause, in milliseconds: a day. Whoever is told to wait longer asks once a day.
private let longestPauseMs = 86_400_000.0

/// The shortest and the longest period that a reply may tell, in milliseconds. Weir tells 60 s at most.
private let periodsMs = 100.0...600_000.0

/// A told period that is not absurd, in milliseconds.
func periodWithin(_ toldMs: Double) -> Double {
    min(max(periodsMs.lowerBound, toldMs), periodsMs.upperBound)
}

/// The pause until the next poll, in milliseconds. The server delays an early reply, but cannot help a late poll.
func untilPoll(periodMs: Double, random: Double) -> Double {
    periodMs * (1 - random / 20)
}

/// The pause after a failure, in milliseconds.
///
/// Without `Retry-After` it doubles with each failure up to 15 s, less up to a half at random. With it, it is at least that, and up to a
/// quarter more, so that a crowd does not come back at once. A closed zone tells the instant of its next opening: there the back-off does
/// not count, because a later comer gets a later place.
func untilRetry(_ problem: Problem, failures: Int, random: () -> Double) -> Double {
    let backoffMs = min(slowestMs, 1_000 * pow(2, Double(min(failures, 10)))) * (1 - random() / 2)
    let leastMs = problem.code == "zone_closed" && problem.retryAfterMs > 0 ? 0 : backoffMs
    return min(longestPauseMs, max(problem.retryAfterMs * (1 + random() / 4), leastMs))
}

/// The milliseconds of a `Retry-After`; 0 if there is none or it cannot be read. Weir sends seconds. A proxy may add a line of its own,
/// which `URLSession` joins with a comma: the longest counts. A proxy may also send a date, which is compared with the reply's own `Date`,
/// because the device's clock may be wrong.
func retryAfterMs(_ retryAfter: String?, date: String?) -> Double {
    let text = retryAfter?.trimmingCharacters(in: .whitespaces) ?? ""
    let lines = text.split(separator: ",", omittingEmptySubsequences: false).map { $0.trimmingCharacters(in: .whitespaces) }
    let seconds = lines.compactMap { line in line.utf8.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains) ? Double(line) : nil }
    if seconds.count == lines.count { return (seconds.max() ?? 0) * 1_000 }
    guard let until = timeOf(text), let from = timeOf(date ?? "") else { return 0 }
    return max(0, until.timeIntervalSince(from) * 1_000)
}

/// The time of a date of HTTP, as RFC 9110 lets it be sent, or nil. The formatter takes more for one.
private func timeOf(_ text: String) -> Date? {
    let format = DateFormatter()
    format.locale = Locale(identifier: "en_US_POSIX")
    format.timeZone = TimeZone(secondsFromGMT: 0)
    format.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
    return format.date(from: text).flatMap { format.string(from: $0) == text ? $0 : nil }
}
