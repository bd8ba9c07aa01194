// The loop of the README has these types, if the document says how the two answers differ. `run` puts the loop behind this.
import type { paths } from "./public";

type Body<Call extends "wait" | "entry"> = paths[`/traffic/${Call}`]["post"]["requestBody"]["content"]["application/json"];
type Answer<Call extends "wait" | "entry"> = paths[`/traffic/${Call}`]["post"]["responses"][200]["content"]["application/json"];
declare function call<Call extends "wait" | "entry">(path: Call, body: Body<Call>): Promise<Answer<Call>>;
declare function showPlace(rank: number, range: number[] | null): void;
declare function enter(pass: string): void;

