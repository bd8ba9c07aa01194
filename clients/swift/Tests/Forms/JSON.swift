import Foundation

/// A value of JSON.
public enum JSON: Sendable, Hashable, Codable {
    case null
    case bool(Bool)
    case number(Double)
    case text(String)
    case list([JSON])
    case fields([String: JSON])

    public init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        if value.decodeNil() {
            self = .null
        } else if let bool = try? value.decode(Bool.self) {
            self = .bool(bool)
        } else if let number = try? value.decode(Double.self) {
            self = .number(number)
        } else if let text = try? value.decode(String.self) {
            self = .text(text)
        } else if let list = try? value.decode([JSON].self) {
            self = .list(list)
        } else {
            self = .fields(try value.decode([String: JSON].self))
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var value = encoder.singleValueContainer()
        switch self {
        case .null: try value.encodeNil()
        case .bool(let bool): try value.encode(bool)
        case .number(let number): try value.encode(number)
        case .text(let text): try value.encode(text)
        case .list(let list): try value.encode(list)
        case .fields(let fields): try value.encode(fields)
        }
    }

    public init(data: Data) throws {
        self = try JSONDecoder().decode(JSON.self, from: data)
    }

    public var data: Data {
        get throws { try JSONEncoder().encode(self) }
    }

    /// The field of this name, or nil.
    public subscript(name: String) -> JSON? {
        if case .fields(let fields) = self { return fields[name] }
        return nil
    }

    public var fields: [String: JSON]? {
        if case .fields(let fields) = self { return fields }
        return nil
    }

    public var list: [JSON]? {
        if case .list(let list) = self { return list }
        return nil
    }

    public var text: String? {
        if case .text(let text) = self { return text }
        return nil
    }

    public var number: Double? {
        if case .number(let number) = self { return number }
        return nil
    }

    public var bool: Bool? {
        if case .bool(let bool) = self { return bool }
        return nil
    }

    /// Whether this has everything that `wanted` has. Objects may have more.
    public func fits(_ wanted: JSON) -> Bool {
        guard case .fields(let members) = wanted else { return self == wanted }
        return members.allSatisfy { name, value in self[name]?.fits(value) == true }
    }
}

extension JSON: CustomStringConvertible {
    public var description: String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return (try? encoder.encode(self)).map { String(decoding: $0, as: UTF8.self) } ?? "?"
    }
}
