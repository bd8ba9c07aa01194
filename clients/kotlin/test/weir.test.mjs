// The client in Kotlin against a running Weir.

import { withARunningWeir } from "../../conformance/weir.mjs";
import { drive } from "./driver.mjs";

withARunningWeir(drive, [{ http: "jvm" }, { http: "android" }]);
