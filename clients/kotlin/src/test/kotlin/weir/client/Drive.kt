// A program that lets another one drive clients over standard input and output, with a line of JSON for each thing that happens. It is used
// by clients/kotlin/test.
//
// It reads `{"id", "do": "begin", "server", "zone", "http", "kept"}` and `{"id", "do": "leave" | "anew" | "stop"}`, and writes
// `{"id", "state"}` and, after each change of the storage, `{"id", "stored"}`.

package weir.client


private fun say(id: Any?, name: String, value: Any?) = synchronized(System.out) { println(writeJson(mapOf("id" to id, name to value))) }

/** One text, whose changes are said. */
private class Said(private val id: Any?, private var text: String?) : Storage {
    override suspend fun get(key: String): String? = text

    override suspend fun set(key: String, value: String?) {
        text = value
        say(id, "stored", value)
    }
}

fun main() {
    val places = mutableMapOf<Any?, Place>()
    while (true) {
        val order = fieldsOf(readJson(readlnOrNull() ?: return))
        val id = order["id"]
        when (order["do"]) {
            "begin" -> {
                val storage = Said(id, order["kept"] as String?)
                val platform = if (order["http"] == "android") android(storage) else jvm(storage)
                places[id] = begin(order["server"] as String, order["zone"] as String, platform) { say(id, "state", formOf(it)) }
            }
            "leave" -> places.getValue(id).leave()
            "anew" -> places.getValue(id).anew()
            "stop" -> places.getValue(id).stop()
        }
    }
}
