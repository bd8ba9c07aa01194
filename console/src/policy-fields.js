// The fields of a zone's policy, from the table in crates/admission/src/policy/fields.rs. Do not edit:
// WEIR_WRITE_DOCS=1 cargo test -p weir --lib reference, then scripts/build-console
export const FIELDS = [
  {"name":"mode","words":["auto","hold","open","closed"],"default":"auto"},
  {"name":"admit_per_minute","unit":"people","low":1,"high":600000,"is_optional_limit":false,"default":10000},
  {"name":"sub_windows","unit":"","low":1,"high":60,"is_optional_limit":false,"default":10},
  {"name":"polling_period_ms","unit":"ms","low":500,"high":60000,"is_optional_limit":false,"default":3000},
  {"name":"idle_timeout_s","unit":"s","low":10,"high":3600,"is_optional_limit":false,"default":60},
  {"name":"pass_ttl_s","unit":"s","low":60,"high":3600,"is_optional_limit":false,"default":300},
  {"name":"on_store_failure","words":["closed","open"],"default":"closed"},
  {"name":"waits_per_minute_per_client","unit":"calls","low":0,"high":600000,"is_optional_limit":true,"default":0},
  {"name":"entries_per_minute_per_client","unit":"calls","low":0,"high":600000,"is_optional_limit":true,"default":0},
  {"name":"max_waiting","unit":"people","low":1,"high":100000000,"is_optional_limit":false,"default":50000000},
  {"name":"polling_period_max_ms","unit":"ms","low":500,"high":60000,"is_optional_limit":false,"default":20000},
  {"name":"visit_ttl_s","unit":"s","low":60,"high":86400,"is_optional_limit":false,"default":3600},
  {"name":"visit_idle_s","unit":"s","low":30,"high":86400,"is_optional_limit":false,"default":900},
  {"name":"max_active","unit":"people","low":0,"high":10000000,"is_optional_limit":true,"default":0},
  {"name":"opens_at","is_instant":true},
];
