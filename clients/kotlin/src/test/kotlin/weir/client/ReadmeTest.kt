package weir.client

import com.sun.net.httpserver.HttpServer
import java.io.ByteArrayOutputStream
import java.io.PrintStream
import java.net.InetAddress
import java.net.InetSocketAddress
import java.nio.file.Files
import java.nio.file.Path
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

suspend fun enter(server: String): String = coroutineScope {
    val place = place(server, zone = "TEST_ZONE")
    val showing = launch {
        place.state.collect { state ->
            if (state is State.Waiting) println("place ${state.rank}, about ${state.eta?.seconds ?: "?"} s")
            state.trouble?.let { println("${it.code}: trying again in ${it.retryMs} ms") }
        }
    }
    try {
        place.entry().pass // throws NoEntry when there is no way on: the place is gone, or the zone does not exist
    } finally {
        showing.cancel()
    }
}

class ReadmeTest {
    @Test
    fun theExampleOfTheReadmeWaitsAndEnters() {
        val readme = Files.readString(Path.of("README.md"))
        val example = Regex("(?s)in ten lines\n\n```kotlin\n(.*?)```").find(readme)!!.groupValues[1]
        val here = Files.readString(Path.of("src/test/kotlin/weir/client/ReadmeTest.kt"))
        assertTrue(here.contains("\n$example"), "this file has the example")

        val replies = ArrayDeque(
            listOf(
                """{"canEnter":false,"token":"t","waiting":{"rank":3,"etaSeconds":4,"etaRange":[2,9],"pollingPeriod":100}}""",
                """{"canEnter":true,"token":"t","pass":"p"}""",
            ),
        )
        val server = HttpServer.create(InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0)
        server.createContext("/traffic/") { exchange ->
            exchange.requestBody.readAllBytes()
            val reply = replies.removeFirst().toByteArray()
            exchange.sendResponseHeaders(200, reply.size.toLong())
            exchange.responseBody.use { it.write(reply) }
        }
        server.start()
        val said = ByteArrayOutputStream()
        val out = System.out
        System.setOut(PrintStream(said, true))
        try {
            assertEquals("p", runBlocking { enter("http://127.0.0.1:${server.address.port}") })
        } finally {
            System.setOut(out)
            server.stop(0)
        }
        assertEquals("place 3, about 4 s\n", said.toString())
    }
}
