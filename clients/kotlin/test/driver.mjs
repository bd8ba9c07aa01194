// Clients in Kotlin, in one JVM, driven by the program src/test/kotlin/weir/client/Drive.kt. `http` of `begin` is `jvm` or `android`.

import * as conformance from "../../conformance/driver.mjs";

const classpath = process.env.CLIENT_CLASSPATH;
if (!classpath) throw new Error("CLIENT_CLASSPATH names no classes: run clients/kotlin/run, which builds them and sets it");

export const drive = () => conformance.drive("java", ["-XX:TieredStopAtLevel=1", "-cp", classpath, "weir.client.DriveKt"]);
