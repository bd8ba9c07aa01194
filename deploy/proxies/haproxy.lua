-- Asks Weir about a request: the action of haproxy.cfg. docs/operate/proxies.md explains it.
--
-- 200 means that the request goes on; the browser gets the visit, if it is a new one. Any other reply goes to the visitor. If there
-- is none, the visitor gets 503.

local address = "http://127.0.0.1:8080/gate/check"
local timeout_ms = 5000

-- The headers of the visitor that Weir reads. The rest of a large head does not matter to it.
local wanted = {
    "accept", "accept-language", "access-control-request-method", "cookie", "origin", "user-agent", "weir-poll", "weir-token",
}
-- They belong to the connection between HAProxy and Weir.
local left_out = { connection = true, ["content-length"] = true, date = true, ["transfer-encoding"] = true }

-- The values of a header, in a list. HAProxy counts them from 0.
local function values(of)
    local list = {}
    for at = 0, #of do
        list[#list + 1] = of[at]
    end
    return list
end

core.register_action("weir", { "http-req" }, function(txn)
    local received = txn.http:req_get_headers()
    local host = received["host"] and received["host"][0] or ""
    local headers = {
        ["x-forwarded-method"] = { txn.sf:method() },
        ["x-forwarded-uri"] = { txn.sf:pathq() },
        ["x-forwarded-host"] = { host },
        ["x-forwarded-proto"] = { txn.sf:ssl_fc() == 1 and "https" or "http" },
        ["x-forwarded-for"] = { txn.sf:src() },
    }
    for _, name in ipairs(wanted) do
        if received[name] then headers[name] = values(received[name]) end
    end
    local reply = core.httpclient():get({ url = address, headers = headers, timeout = timeout_ms })
    if not reply or not reply.status or reply.status == 0 then
        txn:set_var("txn.weir_failed", true)
        return
    end
    local given = reply.headers or {}
    if reply.status == 200 then
        if given["set-cookie"] then txn:set_var("txn.weir_cookie", given["set-cookie"][0]) end
        return
    end
    local answer = txn:reply({ status = reply.status, body = reply.body })
    for name, list in pairs(given) do
        if not left_out[name] then
            for _, value in ipairs(values(list)) do answer:add_header(name, value) end
        end
    end
    txn:done(answer)
end)
