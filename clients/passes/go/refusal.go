package passes

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Code says why a pass is not accepted.
type Code string

const (
	// NoPass: the request has none.
	NoPass Code = "no_pass"
	// Unreadable: it is not a pass of Weir.
	Unreadable Code = "unreadable"
	// UnknownKey: Weir does not publish its key.
	UnknownKey Code = "unknown_key"
	// Forged: the signature does not match.
	Forged Code = "forged"
	// NotYetValid: by this machine's clock.
	NotYetValid Code = "not_yet_valid"
	// Expired: by this machine's clock.
	Expired Code = "expired"
	// OtherService: it is for another audience or zone.
	OtherService Code = "other_service"
	// Spent: it was accepted before.
	Spent Code = "spent"
	// KeysAway: whether Weir publishes its key is not known, and cannot be asked now.
	KeysAway Code = "keys_away"
	// RecordAway: the record of spent passes does not answer, or is full.
	RecordAway Code = "record_away"
)

var titles = map[Code]string{
	NoPass:       "A pass is needed",
	Unreadable:   "This is not a pass",
	UnknownKey:   "The pass is signed by an unknown key",
	Forged:       "The pass is forged",
	NotYetValid:  "The pass is not valid yet",
	Expired:      "The pass has expired",
	OtherService: "The pass is for another service",
	Spent:        "The pass was used already",
	KeysAway:     "Passes cannot be checked now",
	RecordAway:   "Passes cannot be accepted now",
}

// Refusal is the error of a pass that is not accepted. It is an http.Handler that answers with a problem document (RFC 9457), and tells
// callers nothing but the code.
type Refusal struct {
	Code Code
	// Cause is for the log, or nil.
	Cause error
	// RetryAfter is after how long the pass may be shown again, if the status is 503.
	RetryAfter time.Duration
}

func refuse(code Code, cause error) *Refusal {
	return &Refusal{Code: code, Cause: cause, RetryAfter: pause}
}

func (r *Refusal) Error() string {
	if r.Cause == nil {
		return titles[r.Code]
	}
	return fmt.Sprintf("%s: %v", titles[r.Code], r.Cause)
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Cause }

// Status is 401; or 503, if the fault is not the pass.
func (r *Refusal) Status() int {
	if r.Code == KeysAway || r.Code == RecordAway {
		return http.StatusServiceUnavailable
	}
	return http.StatusUnauthorized
}

func (r *Refusal) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	title := titles[r.Code]
	head := w.Header()
	head.Set("Content-Type", "application/problem+json")
	head.Set("Cache-Control", "no-store")
	switch {
	case r.Status() == http.StatusServiceUnavailable:
		head.Set("Retry-After", strconv.Itoa(int(math.Max(1, math.Ceil(r.RetryAfter.Seconds())))))
	case r.Code == NoPass:
		// A request without a pass is told no error, as RFC 6750 says.
		head.Set("WWW-Authenticate", `Bearer realm="weir"`)
	default:
		head.Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="weir", error="invalid_token", error_description="%s"`, title))
	}
	w.WriteHeader(r.Status())
	// The client is gone if this fails.
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": title, "status": r.Status(), "code": r.Code})
}
