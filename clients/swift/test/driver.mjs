// Clients in Swift, in one process, driven by the program Tests/Drive.

import * as conformance from "../../conformance/driver.mjs";

const { CLIENT_DRIVE } = process.env;
if (!CLIENT_DRIVE) throw new Error("CLIENT_DRIVE names no program: run clients/swift/run, which builds it and sets it");

export const drive = () => conformance.drive(CLIENT_DRIVE, []);
