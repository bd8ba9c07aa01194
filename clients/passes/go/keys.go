package passes

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// fresh: after this time the keys are fetched again, because one may have been withdrawn.
	fresh = time.Minute
	// pause is the shortest time between two fetches.
	pause = 10 * time.Second
	// oldest: keys that are older are not used. No pass is valid for longer.
	oldest     = time.Hour
	maxBytes   = 65536
	maxKeys    = 32
	minRSABits = 2048
	maxRSABits = 8192
)

// key is a published key. It names its algorithm: if a pass could choose it, a forger would choose a weak one.
type key struct {
	algorithm string
	public    crypto.PublicKey
}

// verifies tells whether mark is this key's signature of text.
func (k key) verifies(text, mark []byte) bool {
	digest := sha256.Sum256(text)
	switch public := k.public.(type) {
	case *ecdsa.PublicKey:
		if len(mark) != 64 {
			return false
		}
		return ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(mark[:32]), new(big.Int).SetBytes(mark[32:]))
	case ed25519.PublicKey:
		return ed25519.Verify(public, text, mark)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], mark) == nil
	}
	return false
}

// keys are those that Weir publishes. They are fetched at most once in a pause, however many passes name unknown keys. A key that is not
// published any more is used for a minute at most, unless Weir does not answer: then for an hour. Whoever shows a pass of a known key waits
// for a fetch during its first second only. A text of keys that is wrong in any way replaces nothing. A key is unknown only if the last fetch
// succeeded without it, and began after its name was asked for or the key was withdrawn. Otherwise, a later fetch may bring it.
type keys struct {
	address string
	client  *http.Client
	// now must not jump. That of the time package has a steady part.
	now func() time.Time

	// mutex is held only for moments.
	mutex sync.Mutex
	known map[string]key
	// Zero times: never.
	fetchedAt, askedAt time.Time
	// asking is the last fetch, or nil.
	asking *asking
	// wanted are names that were asked for since the last fetch began, at most maxKeys; missed are names that this fetch did not bring.
	wanted, missed map[string]bool
	// fault is why the last fetch says nothing about a key.
	fault error
}

var errTooEarly = errors.New("the keys were fetched a moment ago, without the key of this pass")

// asking is a fetch.
type asking struct {
	// over is closed when it has ended, and late when a fifth of its time limit has passed. Then Weir is taken to be away wherever a
	// known key will do.
	over, late chan struct{}
}

func newKeys(address string) *keys {
	// A redirect would let somebody else say which keys there are.
	follow := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &keys{address: address, client: &http.Client{Timeout: 5 * time.Second, CheckRedirect: follow}, now: time.Now,
		wanted: map[string]bool{}}
}

// find returns the key of this name. Its error is a *Refusal.
func (k *keys) find(ctx context.Context, kid string) (key, error) {
	found, isKnown, age := k.look(kid)
	if isKnown && age < fresh {
		return found, nil
	}
	if asking := k.refresh(kid); asking != nil {
		late := asking.late
		if !isKnown || age >= oldest {
			late = nil
		}
		select {
		case <-asking.over:
		case <-late:
		case <-ctx.Done():
		}
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	found, isKnown, age = k.lookLocked(kid)
	fault := k.fault
	switch {
	case ctx.Err() != nil:
		fault = ctx.Err()
	case age >= oldest:
	case isKnown:
		return found, nil
	case k.missed[kid]:
		return key{}, refuse(UnknownKey, nil)
	}
	return key{}, &Refusal{Code: KeysAway, Cause: fault, RetryAfter: pause - k.now().Sub(k.askedAt)}
}

// look returns the key, whether it is known, and how old the keys are.
func (k *keys) look(kid string) (key, bool, time.Duration) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.lookLocked(kid)
}

func (k *keys) lookLocked(kid string) (key, bool, time.Duration) {
	found, isKnown := k.known[kid]
	if k.fetchedAt.IsZero() {
		return found, false, oldest
	}
	return found, isKnown, k.now().Sub(k.fetchedAt)
}

// refresh begins to fetch the keys, once for all who ask meanwhile, unless the last fetch was a moment ago. It returns the last fetch. It does
// not depend on one caller's context: the others need the keys, too.
func (k *keys) refresh(kid string) *asking {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	// Another caller may have fetched them meanwhile.
	if _, isKnown, age := k.lookLocked(kid); isKnown && age < fresh {
		return nil
	}
	if !k.askedAt.IsZero() && k.now().Sub(k.askedAt) < pause {
		if len(k.wanted) < maxKeys {
			k.wanted[kid] = true
		}
		return k.asking
	}
	k.askedAt = k.now()
	missed := k.wanted
	missed[kid] = true
	k.wanted, k.missed = map[string]bool{}, nil
	asking := &asking{make(chan struct{}), make(chan struct{})}
	k.asking = asking
	time.AfterFunc(k.client.Timeout/5, func() { close(asking.late) })
	go func() {
		defer close(asking.over)
		known, err := k.fetch()
		k.mutex.Lock()
		defer k.mutex.Unlock()
		if err != nil {
			k.fault = err
			return
		}
		for kid := range k.known {
			missed[kid] = true
		}
		k.known, k.fetchedAt, k.missed, k.fault = known, k.now(), missed, errTooEarly
	}()
	return asking
}

func (k *keys) fetch() (map[string]key, error) {
	request, err := http.NewRequest(http.MethodGet, k.address, nil)
	if err != nil {
		return nil, err
	}
	// A cache in between would keep a withdrawn key for its own time, and a new one away.
	request.Header.Set("Cache-Control", "no-cache")
	reply, err := k.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("Weir answers %d", reply.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(reply.Body, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("the keys have more than %d bytes", maxBytes)
	}
	return keysOf(text)
}

func keysOf(text []byte) (map[string]key, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	// The decoder would replace what is not UTF-8.
	if !utf8.Valid(text) {
		return nil, errors.New("the text of keys is not UTF-8")
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, err
	}
	if set.Keys == nil {
		return nil, errors.New("the text of keys has no list of keys")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("there are more than %d keys", maxKeys)
	}
	known := map[string]key{}
	for _, raw := range set.Keys {
		kid, found, ok := keyOf(raw)
		// The first of two keys with one name counts.
		if _, isKnown := known[kid]; ok && !isKnown {
			known[kid] = found
		}
	}
	return known, nil
}

// keyOf reads a JWK. It is not ok if passes cannot be signed with it.
func keyOf(raw json.RawMessage) (kid string, found key, ok bool) {
	var jwk struct {
		Kid                            *string
		Alg, Use, Kty, Crv, X, Y, N, E string
	}
	if json.Unmarshal(raw, &jwk) != nil || jwk.Kid == nil || (jwk.Use != "" && jwk.Use != "sig") {
		return "", key{}, false
	}
	var public crypto.PublicKey
	switch {
	case jwk.Kty == "EC" && jwk.Crv == "P-256" && jwk.Alg == "ES256":
		public = pointOf(jwk.X, jwk.Y)
	case jwk.Kty == "OKP" && jwk.Crv == "Ed25519" && jwk.Alg == "EdDSA":
		if bytes, err := decode(jwk.X); err == nil && len(bytes) == ed25519.PublicKeySize {
			public = ed25519.PublicKey(bytes)
		}
	case jwk.Kty == "RSA" && jwk.Alg == "RS256":
		public = modulusOf(jwk.N, jwk.E)
	}
	return *jwk.Kid, key{jwk.Alg, public}, public != nil
}

func pointOf(x, y string) crypto.PublicKey {
	xs, errX := decode(x)
	ys, errY := decode(y)
	if errX != nil || errY != nil || len(xs) != 32 || len(ys) != 32 {
		return nil
	}
	public := &ecdsa.PublicKey{Curve: elliptic.P256(), X: new(big.Int).SetBytes(xs), Y: new(big.Int).SetBytes(ys)}
	if !public.Curve.IsOnCurve(public.X, public.Y) {
		return nil
	}
	return public
}

func modulusOf(n, e string) crypto.PublicKey {
	ns, errN := decode(n)
	es, errE := decode(e)
	if errN != nil || errE != nil || len(es) > 4 {
		return nil
	}
	public := &rsa.PublicKey{N: new(big.Int).SetBytes(ns), E: int(new(big.Int).SetBytes(es).Int64())}
	if bits := public.N.BitLen(); bits < minRSABits || bits > maxRSABits || public.E < 3 || public.E%2 == 0 {
		return nil
	}
	return public
}
