"""Turns dashboards into TypeScript that compiles only if Grafana's types have all their fields:
to_typescript.py FILE... >check.ts

JSON Schemas of dashboards are not published any more; the types are, with each version of Grafana.
"""

import json
import pathlib
import sys

PANELS = {"timeseries": "TimeSeries", "stat": "Stat", "table": "Table"}

HEAD = """import type { AnnotationQuery, Dashboard, DataQuery, Panel, RowPanel } from '@grafana/schema';
import type * as TimeSeries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type * as Stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as Table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';

// As JSON has it: the values of enumerations, not their names.
type Written<T> = T extends string ? (string extends T ? T : `${T}`)
  : T extends number | boolean | null | undefined ? T
  : T extends Array<infer U> ? Array<Written<U>>
  : T extends object ? { [K in keyof T]: Written<T[K]> }
  : T;
interface Query extends DataQuery {
  expr: string;
  legendFormat?: string;
  format?: 'table';
  instant?: boolean;
}
interface Targets { targets: Query[] }
type Drawn = (Omit<Panel, 'targets' | 'options'> & Targets & { options: object }) | RowPanel;
type Whole = Omit<Dashboard, 'annotations' | 'panels'>
  & { uid: string; title: string; annotations: { list: Array<AnnotationQuery<Query>> }; panels: Drawn[] };
"""


def main() -> None:
    print(HEAD)
    for file in sys.argv[1:]:
        name = pathlib.Path(file).stem
        dashboard = json.loads(pathlib.Path(file).read_text())
        print(f"export const {name}: Written<Whole> = {json.dumps(dashboard, indent=1)};")
        for n, panel in enumerate(dashboard["panels"]):
            kind = panel["type"]
            if kind == "row":
                continue
            if kind not in PANELS:
                sys.exit(f"{file}: panel {n} is a {kind}, which this script does not know yet")
            types = PANELS[kind]
            options = json.dumps(panel["options"])
            print(f"export const {name}_{n}: Written<Partial<{types}.Options>> = {options};")
            if custom := panel["fieldConfig"]["defaults"].get("custom"):
                print(f"export const {name}_{n}_field: Written<Partial<{types}.FieldConfig>> = {json.dumps(custom)};")


main()
