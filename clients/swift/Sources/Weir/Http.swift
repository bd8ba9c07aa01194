// Requests over the network, by URLSession.

import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Posts JSON.
struct Http: Sendable {
    static let shared = Http()

    private let exchanges = Exchanges()
    private let session: URLSession

    private init() {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpShouldSetCookies = false
        configuration.urlCache = nil
        configuration.timeoutIntervalForRequest = slowestMs / 1_000
        session = URLSession(configuration: configuration, delegate: exchanges, delegateQueue: nil)
    }

    @Sendable func post(_ address: URL, _ body: Data) async throws -> Reply {
        var request = URLRequest(url: address)
        request.httpMethod = "POST"
        request.httpBody = body
        request.setValue("application/json", forHTTPHeaderField: "Content-Type")
        let task = session.dataTask(with: request)
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { exchanges.begin(task, $0) }
        } onCancel: {
            exchanges.end(task, .failure(CancellationError()))
            task.cancel()
        }
    }
}

/// The calls that wait for their replies. A reply is read in pieces, so that one that does not end is cut off.
private final class Exchanges: NSObject, URLSessionDataDelegate {
    private struct Exchange {
        let waiter: CheckedContinuation<Reply, any Error>
        var body = Data()
    }

    private let running = Locked<[Int: Exchange]>([:])

    func begin(_ task: URLSessionDataTask, _ waiter: CheckedContinuation<Reply, any Error>) {
        running.with { $0[task.taskIdentifier] = Exchange(waiter: waiter) }
        // Whoever was cancelled before this line found no exchange to end.
        if Task.isCancelled {
            end(task, .failure(CancellationError()))
        } else {
            task.resume()
        }
    }

    /// Only the first end of an exchange counts.
    func end(_ task: URLSessionTask, _ result: Result<Reply, any Error>) {
        running.with { $0.removeValue(forKey: task.taskIdentifier) }?.waiter.resume(with: result)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        let length = running.with { all in
            all[dataTask.taskIdentifier]?.body.append(data)
            return all[dataTask.taskIdentifier]?.body.count ?? 0
        }
        guard length > longestReply else { return }
        end(dataTask, .failure(Unreadable(what: "too long")))
        dataTask.cancel()
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        let body = running.with { $0[task.taskIdentifier]?.body } ?? Data()
        if let error {
            end(task, .failure(error))
        } else if let reply = task.response as? HTTPURLResponse {
            end(task, .success(Reply(status: reply.statusCode, header: { reply.value(forHTTPHeaderField: $0) }, body: body)))
        } else {
            end(task, .failure(URLError(.badServerResponse)))
        }
    }

    /// Redirects are not followed: Weir sends none, and the page of a captive portal is no reply.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest,
        completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        completionHandler(nil)
    }
}
