// What went wrong, and what a client does about it: the table of docs/app/errors.md.
//
// Invariant: only a reply of Weir with a status of 4xx ends a place. Whatever a network or a proxy does, the client tries again.

import Foundation

/// A failure, in the words of Weir.
public struct Trouble: Sendable, Hashable {
    /// What a client does.
    public enum Action: Sendable, Hashable {
        /// The client asks again by itself.
        case retry
        /// The place is lost. The user decides whether to take a new one, at the end of the line.
        case newPlace
        /// Another try fails, too. An app, an address or a setting must change.
        case giveUp
    }

    /// A code of Weir's errors; `offline`: no reply; `away`: a reply that is not from Weir.
    public let code: String
    /// One line for people, in English.
    public let title: String
    /// What exactly is wrong, in English, or an empty text.
    public let detail: String
    public let action: Action
    /// When the client asks again, in milliseconds from now; 0 unless `action` is `retry`.
    public let retryMs: Int
    /// The address of a page to which people can go on meanwhile, because the zone is closed around an event that names it; empty without one.
    public let page: String
}

/// A call that did not succeed.
struct Problem: Error {
    let code: String
    var status = 0
    var title = ""
    var detail = ""
    var page = ""
    /// What `Retry-After` said, in milliseconds; 0 without it.
    var retryAfterMs = 0.0

    var action: Trouble.Action {
        if !(400..<500).contains(status) || status == 408 || status == 429 { return .retry }
        return code == "gone" || code == "bad_token" ? .newPlace : .giveUp
    }

    /// Whether Weir said nothing, and may have done what was asked.
    var isUnanswered: Bool { code == "offline" || code == "away" }

    func trouble(retryMs: Double) -> Trouble {
        let known = title.isEmpty ? code : title
        return Trouble(code: code, title: known, detail: detail, action: action, retryMs: Int(retryMs.rounded(.up)), page: page)
    }
}

extension Problem {
    private static let longestText = 1_000
    private static let longestCode = 64

    /// A problem document. All its fields may be missing, or be something else.
    private struct Document: Decodable {
        let type, code, title, detail, page: String?

        enum CodingKeys: CodingKey { case type, code, title, detail, page }

        init(from decoder: any Decoder) throws {
            let fields = try decoder.container(keyedBy: CodingKeys.self)
            func text(_ key: CodingKeys) -> String? { try? fields.decode(String.self, forKey: key) }
            (type, code) = (text(.type), text(.code))
            (title, detail, page) = (text(.title), text(.detail), text(.page))
        }
    }

    /// The problem of a call that failed.
    init(of fault: any Error) {
        self = fault as? Problem ?? Problem(code: fault is Unreadable ? "away" : "offline")
    }

    /// The problem of a reply that is not 2xx. A document without the type of its code is not from Weir: a proxy in between has a problem, and
    /// may have codes of its own.
    init(_ reply: Reply) {
        let pauseMs = Weir.retryAfterMs(reply.header("retry-after"), date: reply.header("date"))
        let document = try? JSONDecoder().decode(Document.self, from: reply.body)
        guard let code = document?.code, Self.isCode(code), document?.type == "urn:weir:problem:\(code)" else {
            self.init(code: "away", retryAfterMs: min(pauseMs, longestAwayMs))
            return
        }
        func cut(_ text: String?) -> String { String((text ?? "").prefix(Self.longestText)) }
        self.init(
            code: code,
            status: reply.status,
            title: cut(document?.title),
            detail: cut(document?.detail),
            page: document?.page.flatMap { Self.isPage($0) ? $0 : nil } ?? "",
            retryAfterMs: pauseMs
        )
    }

    /// Whether a text is the address of a page as operators may write it: a web page without a user, or a path of Weir's host.
    private static func isPage(_ text: String) -> Bool {
        let isSpelled = text.utf8.allSatisfy { (UInt8(ascii: "!")...UInt8(ascii: "~")).contains($0) }
        let isOfRightLength = (1...longestText).contains(text.utf8.count)
        guard isSpelled, isOfRightLength, !text.contains(where: { "\"<>\\".contains($0) }) else { return false }
        guard let scheme = ["https://", "http://"].first(where: { text.hasPrefix($0) }) else {
            return text.hasPrefix("/") && !text.hasPrefix("//")
        }
        let host = text.dropFirst(scheme.count).prefix(while: { !"/?#".contains($0) })
        return !host.isEmpty && !host.contains("@")
    }

    private static func isCode(_ text: String) -> Bool {
        let isKnown = { (c: Character) in ("a"..."z").contains(c) || ("0"..."9").contains(c) || c == "_" }
        return (1...longestCode).contains(text.utf8.count) && text.utf8.count == text.count && text.allSatisfy(isKnown)
    }
}
