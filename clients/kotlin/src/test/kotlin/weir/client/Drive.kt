// A program that lets another one drive clients over standard input and output. It is used by clients/kotlin/test.
//
// clients/conformance/driver.mjs describes the lines.

package weir.client

import java.util.concurrent.ConcurrentHashMap

private fun say(id: Any?, name: String, value: Any?) = synchronized(System.out) { println(writeJson(mapOf("id" to id, name to value))) }

/** Texts by key. The changes of the place's text are said; beside it is the key of a first `wait`. */
private class Said(private val id: Any?, private val place: String, text: String?) : Storage {
    private val all = ConcurrentHashMap<String, String>().apply { if (text != null) put(place, text) }

    override suspend fun get(key: String): String? = all[key]

    override suspend fun set(key: String, value: String?) {
        if (value == null) all -= key else all[key] = value
        if (key == place) say(id, "stored", value)
    }
}

fun main() {
    val places = mutableMapOf<Any?, Place>()
    while (true) {
        val order = fieldsOf(readJson(readlnOrNull() ?: return))
        val id = order["id"]
        when (order["do"]) {
            "begin" -> {
                val storage = Said(id, "weir ${order["server"]}/ ${order["zone"]}", order["kept"] as String?)
                val platform = if (order["http"] == "android") android(storage) else jvm(storage)
                places[id] = begin(order["server"] as String, order["zone"] as String, platform) { say(id, "state", formOf(it)) }
            }
            "leave" -> places.getValue(id).leave()
            "anew" -> places.getValue(id).anew()
            "stop" -> places.getValue(id).stop()
        }
    }
}
