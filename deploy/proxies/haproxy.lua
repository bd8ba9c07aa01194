-- Asks Weir about a request: the action of haproxy.cfg. docs/operate/proxies.md explains it.
--
-- 200 means that the request goes on; the browser gets the visit, if it is a new one. Any other reply goes to the visitor. If there
-- is none, the visitor gets 503.
--
-- It speaks HTTP/1.0 over a socket, and asks once. The HTTP client of HAProxy 2.6 asks four times, and about a hundred header lines make it,
-- and so HAProxy, crash.

local address, port, path = "127.0.0.1", 8080, "/gate/check"
-- Weir answers within a second.
local timeout_s = 3
-- The page has about 20 KB.
local longest_reply = 262144

-- The headers of the visitor that Weir reads, each as one line. The rest of a large head does not matter to it.
local wanted = {
    "accept", "accept-language", "access-control-request-method", "origin", "purpose", "sec-fetch-dest", "sec-fetch-mode",
    "sec-fetch-site", "sec-purpose", "sec-websocket-key", "upgrade", "user-agent", "weir-poll", "weir-token", "x-http-method",
    "x-http-method-override", "x-method-override", "x-moz",
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

-- The question. A visitor chooses neither the number of its lines nor where one ends.
local function question(txn)
    local received = txn.http:req_get_headers()
    local lines = { "GET " .. path .. " HTTP/1.0", "Host: weir" }
    local function add(name, value)
        lines[#lines + 1] = name .. ": " .. string.gsub(value, "[\r\n%z]", " ")
    end
    add("X-Forwarded-Method", txn.sf:method())
    add("X-Forwarded-Uri", txn.sf:pathq())
    add("X-Forwarded-Host", received["host"] and received["host"][0] or "")
    add("X-Forwarded-Proto", txn:get_var("txn.scheme"))
    add("X-Forwarded-For", txn:get_var("txn.client"))
    if received["cookie"] then add("Cookie", table.concat(values(received["cookie"]), "; ")) end
    for _, name in ipairs(wanted) do
        if received[name] then add(name, table.concat(values(received[name]), ", ")) end
    end
    return table.concat(lines, "\r\n") .. "\r\n\r\n"
end

-- The reply: its status, its header lines in a list of pairs, and its body. Nothing if there is none in time.
local function ask(text)
    local socket = core.tcp()
    socket:settimeout(timeout_s)
    local reply = nil
    if socket:connect(address, port) and socket:send(text) then
        local received, _, part = socket:receive("*a")
        reply = received or part
    end
    socket:close()
    if not reply or #reply > longest_reply then return nil end
    local head, body = string.match(reply, "^(.-\r\n)\r\n(.*)$")
    local status = head and tonumber(string.match(head, "^HTTP/1%.[01] (%d%d%d)"))
    if not status then return nil end
    local headers = {}
    for name, value in string.gmatch(head, "\n([%w-]+): *([^\r\n]*)\r") do
        headers[#headers + 1] = { string.lower(name), value }
        if string.lower(name) == "content-length" and tonumber(value) ~= #body then return nil end
    end
    return status, headers, body
end

core.register_action("weir", { "http-req" }, function(txn)
    local status, headers, body = ask(question(txn))
    if not status then
        txn:set_var("txn.weir_failed", true)
        return
    end
    if status == 200 then
        for _, pair in ipairs(headers) do
            if pair[1] == "set-cookie" then txn:set_var("txn.weir_cookie", pair[2]) end
        end
        return
    end
    local answer = txn:reply({ status = status, body = body })
    for _, pair in ipairs(headers) do
        if not left_out[pair[1]] then answer:add_header(pair[1], pair[2]) end
    end
    txn:done(answer)
end)
