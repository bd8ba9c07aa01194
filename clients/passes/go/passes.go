// Package passes accepts passes of Weir, each once, in front of any http.Handler. docs/app/clients.md describes what every verifier
// does. It uses only the standard library.
//
// Invariant: nothing in a pass is believed before its signature is verified, except which key to use.
package passes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// leeway is the largest difference between Weir's clock and this machine's.
	leeway = 5 * time.Second
	// kept is how much longer than a pass is accepted its name is kept: the clocks of those that share the record may differ.
	kept = 60 * time.Second
	// spendLimit is the time limit of the record: that of the keys.
	spendLimit = 5 * time.Second
	// maxPass is the longest pass, in bytes. Weir's have less than 1,500.
	maxPass = 8192
	maxJTI  = 256
)

// Pass is what a pass says.
type Pass struct {
	Zone string
	// JTI is the name of the entry.
	JTI string
	// Expires is when the pass ends.
	Expires time.Time
}

// Spend records that the pass of this key was accepted, and returns whether it is the first time. It must be atomic among all that share
// the record, and the key must be kept until the given time. If it returns an error, nobody enters. It must return when ctx ends, which is
// after 5 s at the latest.
type Spend func(ctx context.Context, key string, until time.Time) (first bool, err error)

// Options say which passes are accepted.
type Options struct {
	// Weir is the address of Weir, such as https://weir.example.
	Weir string
	// Zone is the zone of the passes.
	Zone string
	// Audience is Weir's pass.audience. If it is empty, it is "weir", as in Weir.
	Audience string
	// Spend is the record of spent passes, which all processes of a service must share. If it is nil, it is the memory of this process.
	Spend Spend
}

// Verifier accepts the passes of one zone. It may be used by many goroutines.
type Verifier struct {
	keys           *keys
	zone, audience string
	spend          Spend
	spendLimit     time.Duration
	now            func() time.Time
}

// New makes a verifier. It fails if the address is not one of http or https, or the zone is empty.
func New(options Options) (*Verifier, error) {
	address, err := url.Parse(options.Weir)
	if err != nil || (address.Scheme != "http" && address.Scheme != "https") || address.Host == "" {
		return nil, fmt.Errorf("passes: Weir must be an address such as https://weir.example, not %q", options.Weir)
	}
	if options.Zone == "" {
		return nil, errors.New("passes: Zone must not be empty")
	}
	v := &Verifier{zone: options.Zone, audience: options.Audience, spend: options.Spend, spendLimit: spendLimit, now: time.Now}
	if v.audience == "" {
		v.audience = "weir"
	}
	if v.spend == nil {
		v.spend = newMemory(func() time.Time { return v.now() }, most).spend
	}
	v.keys = newKeys(strings.TrimRight(options.Weir, "/") + "/.well-known/jwks.json")
	return v, nil
}

// Accept accepts a pass, for example the field `pass` of a form. Its error is a *Refusal. The pass is not spent then, except with
// RecordAway: it may be spent.
func (v *Verifier) Accept(ctx context.Context, text string) (Pass, error) {
	pass, err := v.verify(ctx, text)
	if err != nil {
		return Pass{}, err
	}
	limited, cancel := context.WithTimeout(ctx, v.spendLimit)
	defer cancel()
	first, err := v.spend(limited, "weir:spent:"+pass.JTI, pass.Expires.Add(leeway+kept))
	if err != nil {
		return Pass{}, refuse(RecordAway, err)
	}
	if !first {
		return Pass{}, refuse(Spent, nil)
	}
	return pass, nil
}

type passKey struct{}

// From returns the pass that Handler accepted for this request.
func From(ctx context.Context) (Pass, bool) {
	pass, ok := ctx.Value(passKey{}).(Pass)
	return pass, ok
}

// Handler takes the pass of `Authorization: Bearer …` and lets next answer, or answers with the refusal.
func (v *Verifier) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pass, err := v.acceptOf(r)
		var refusal *Refusal
		if errors.As(err, &refusal) {
			refusal.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passKey{}, pass)))
	})
}

var bearer = regexp.MustCompile(`^(?i:Bearer) +(\S+)$`)

func (v *Verifier) acceptOf(r *http.Request) (Pass, error) {
	// Of two, a proxy before this service may have read the other one.
	fields := r.Header.Values("Authorization")
	if len(fields) != 1 {
		return Pass{}, refuse(NoPass, nil)
	}
	found := bearer.FindStringSubmatch(fields[0])
	if found == nil {
		return Pass{}, refuse(NoPass, nil)
	}
	return v.Accept(r.Context(), found[1])
}

// verify does not spend the pass.
func (v *Verifier) verify(ctx context.Context, text string) (Pass, error) {
	parts := strings.Split(text, ".")
	if len(text) > maxPass || len(parts) != 3 {
		return Pass{}, refuse(Unreadable, nil)
	}
	head, body := map[string]any{}, map[string]any{}
	mark, err := decode(parts[2])
	if err != nil || !readFields(parts[0], &head) || !isBase64(parts[1]) {
		return Pass{}, refuse(Unreadable, err)
	}
	kid, isText := head["kid"].(string)
	// Nothing critical is known here, so RFC 7515 demands a refusal.
	if _, isCritical := head["crit"]; !isText || isCritical {
		return Pass{}, refuse(Unreadable, nil)
	}
	key, err := v.keys.find(ctx, kid)
	if err != nil {
		return Pass{}, err
	}
	if head["alg"] != key.algorithm || !key.verifies([]byte(parts[0]+"."+parts[1]), mark) {
		return Pass{}, refuse(Forged, nil)
	}
	if !readFields(parts[1], &body) {
		return Pass{}, refuse(Unreadable, nil)
	}
	return v.judge(body)
}

// judge looks at the claims of a pass whose signature is right.
func (v *Verifier) judge(claims map[string]any) (Pass, error) {
	jti, hasName := claims["jti"].(string)
	nbf, hasBeginning := seconds(claims["nbf"])
	exp, hasEnd := seconds(claims["exp"])
	if !hasName || !hasBeginning || !hasEnd || !isName(jti) {
		return Pass{}, refuse(Unreadable, nil)
	}
	now := v.now()
	if now.Before(nbf.Add(-leeway)) {
		return Pass{}, refuse(NotYetValid, nil)
	}
	if !now.Before(exp.Add(leeway)) {
		return Pass{}, refuse(Expired, nil)
	}
	if !v.isFor(claims["aud"]) || claims["zone"] != v.zone {
		return Pass{}, refuse(OtherService, nil)
	}
	return Pass{Zone: v.zone, JTI: jti, Expires: exp}, nil
}

func (v *Verifier) isFor(aud any) bool {
	if many, isList := aud.([]any); isList {
		for _, one := range many {
			if one == v.audience {
				return true
			}
		}
		return false
	}
	return aud == v.audience
}

// isName tells whether a jti may be part of a key in the record of spent passes.
func isName(jti string) bool {
	for _, c := range []byte(jti) {
		if c < 0x21 || c > 0x7e {
			return false
		}
	}
	return jti != "" && len(jti) <= maxJTI
}

// seconds reads a time of a claim: seconds since 1970.
func seconds(claim any) (time.Time, bool) {
	value, isNumber := claim.(float64)
	if !isNumber || math.Abs(value) > 1e12 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(value * 1000)), true
}

// decode reads base64url without padding.
func decode(part string) ([]byte, error) {
	// The decoder would skip them, and one pass would have many texts.
	if strings.ContainsAny(part, "\r\n") {
		return nil, errors.New("a line break")
	}
	return base64.RawURLEncoding.Strict().DecodeString(part)
}

func isBase64(part string) bool {
	_, err := decode(part)
	return err == nil
}

func readFields(part string, fields *map[string]any) bool {
	text, err := decode(part)
	// The decoder would replace what is not UTF-8.
	return err == nil && utf8.Valid(text) && json.Unmarshal(text, fields) == nil
}
