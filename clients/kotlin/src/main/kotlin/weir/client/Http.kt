// Requests over the network: by java.net.http on the JVM, which Android does not have, and by HttpURLConnection on Android. That of the JVM
// cannot be used: it repeats a POST whose reply was lost, and the repeated `wait` takes a second place. In its mode without repeats it
// hides the replies with the status 401.

package weir.client

import java.io.IOException
import java.io.InputStream
import java.net.HttpURLConnection
import java.net.URI
import java.net.URL
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.time.Duration
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.future.await
import kotlinx.coroutines.launch
import kotlinx.coroutines.runInterruptible

private const val JSON = "application/json"

internal class JvmHttp : Http {
    // With HTTP/2, each request over a plain connection would ask to change to it. Redirects are not followed, as on Android.
    private val client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofMillis(SLOWEST_MS))
        .followRedirects(HttpClient.Redirect.NEVER).build()

    override suspend fun post(address: String, body: String): Reply {
        val request = HttpRequest.newBuilder(URI.create(address)).timeout(Duration.ofMillis(SLOWEST_MS)).header("Content-Type", JSON)
            .POST(HttpRequest.BodyPublishers.ofString(body)).build()
        val reply = client.sendAsync(request, HttpResponse.BodyHandlers.ofInputStream()).await()
        val text = reply.body().use { stream -> runInterruptible(Dispatchers.IO) { textOf(stream) } }
        return Reply(reply.statusCode(), { linesOf(reply.headers().allValues(it)) }, text)
    }
}

internal class AndroidHttp : Http {
    /** Its threads block until the socket says something. So a caller does not wait for them. */
    private val blocking = CoroutineScope(Dispatchers.IO)

    override suspend fun post(address: String, body: String): Reply {
        val connection = URL(address).openConnection() as HttpURLConnection
        val reply = CompletableDeferred<Reply>()
        blocking.launch {
            try {
                reply.complete(exchange(connection, body.toByteArray()))
            } catch (fault: Exception) {
                reply.completeExceptionally(fault)
            } finally {
                connection.disconnect()
            }
        }
        try {
            return reply.await()
        } finally {
            // Ends what still reads. It is launched, because closing may block, too.
            if (!reply.isCompleted) blocking.launch { connection.disconnect() }
        }
    }

    private fun exchange(connection: HttpURLConnection, body: ByteArray): Reply {
        connection.requestMethod = "POST"
        connection.setRequestProperty("Content-Type", JSON)
        connection.instanceFollowRedirects = false
        connection.useCaches = false
        connection.connectTimeout = SLOWEST_MS.toInt()
        connection.readTimeout = SLOWEST_MS.toInt()
        connection.doOutput = true
        // A body that is not kept is not sent twice.
        connection.setFixedLengthStreamingMode(body.size)
        connection.outputStream.use { it.write(body) }
        val status = connection.responseCode
        val stream = if (status < 400) connection.inputStream else connection.errorStream
        val text = stream?.use(::textOf).orEmpty()
        // The JDK takes the end of a broken connection for the end of the reply.
        if (text.toByteArray().size < connection.contentLengthLong) throw IOException("the reply broke off")
        return Reply(status, { header(connection, it) }, text)
    }

    /** Of several lines, `getHeaderField` gives one. */
    private fun header(connection: HttpURLConnection, name: String): String? =
        linesOf(connection.headerFields.filterKeys { name.equals(it, ignoreCase = true) }.values.flatten())
}

/** The lines of a header in one, as `fetch` has them: a proxy may have added one. Null if there is none. */
private fun linesOf(lines: List<String>): String? = if (lines.isEmpty()) null else lines.joinToString(", ")

private fun textOf(stream: InputStream): String {
    val bytes = ByteArray(LONGEST_REPLY + 1)
    var length = 0
    while (length < bytes.size) {
        val read = stream.read(bytes, length, bytes.size - length)
        if (read < 0) return String(bytes, 0, length, Charsets.UTF_8)
        length += read
    }
    throw Unreadable("too long")
}
