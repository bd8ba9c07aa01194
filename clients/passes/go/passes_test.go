package passes

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The vectors that all verifiers share.
type vectors struct {
	Audience, Zone string
	Epoch          int64
	Sets           map[string]json.RawMessage
	Cases          []struct {
		Name, JWKS, Pass, Expect string
		Now                      int64
		Claims                   *struct {
			Zone, JTI string
			Exp       int64
		}
	}
	Scenarios []struct {
		Name  string
		Steps []struct {
			Serve  *served
			At     int64
			Pass   *string
			Expect string
			// When to come again, in seconds.
			RetryAfter int `json:"retry_after"`
			Fetches    int64
		}
	}
}

type served struct {
	Set, Body, Redirect string
	Status, Padding     int
	Hang, Endless       bool
	Trickle, Cut, Hints bool
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile("../vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var read vectors
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// publisher is a Weir that publishes keys as a scenario says.
type publisher struct {
	*httptest.Server
	what    atomic.Pointer[served]
	fetches atomic.Int64
}

func publish(t *testing.T, sets map[string]json.RawMessage) *publisher {
	t.Helper()
	p := &publisher{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			_, _ = w.Write(sets["a"])
			return
		}
		p.fetches.Add(1)
		what := p.what.Load()
		switch {
		case r.Header.Get("Cache-Control") != "no-cache":
			// As a cache does that has older keys.
			_, _ = io.WriteString(w, `{"keys":[]}`)
		case what.Hang:
			<-r.Context().Done()
		case what.Redirect != "":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case what.Trickle:
			for tick := time.NewTicker(100 * time.Millisecond); r.Context().Err() == nil; <-tick.C {
				fmt.Fprint(w, " ")
				w.(http.Flusher).Flush()
			}
		case what.Endless:
			for piece := strings.Repeat(" ", 16384); r.Context().Err() == nil; {
				if _, err := fmt.Fprint(w, piece); err != nil {
					return
				}
			}
		case what.Body != "":
			fmt.Fprint(w, what.Body)
		case what.Cut:
			w.Header().Set("Content-Length", strconv.Itoa(len(sets[what.Set])+1))
			_, _ = w.Write(sets[what.Set])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			if what.Hints {
				w.WriteHeader(http.StatusProcessing)
				w.Header().Set("Link", "</style.css>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
			}
			if what.Status != 0 {
				w.WriteHeader(what.Status)
			}
			fmt.Fprint(w, string(sets[what.Set])+strings.Repeat(" ", what.Padding))
		}
	}))
	t.Cleanup(func() {
		// A fetch may hang still.
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// verifier has the clocks that the test sets, in seconds since 1970.
func verifier(t *testing.T, v vectors, address string, now *atomic.Int64, spend Spend) *Verifier {
	t.Helper()
	made, err := New(Options{Weir: address, Zone: v.Zone, Audience: v.Audience, Spend: spend})
	if err != nil {
		t.Fatal(err)
	}
	made.now = func() time.Time { return time.Unix(now.Load(), 0) }
	made.keys.now = made.now
	made.keys.client.Timeout = 20 * time.Second
	return made
}

func said(v *Verifier, pass string) (string, Pass) {
	found, err := v.Accept(context.Background(), pass)
	var refusal *Refusal
	switch {
	case err == nil:
		return "ok", found
	case errors.As(err, &refusal):
		return string(refusal.Code), found
	default:
		return err.Error(), found
	}
}

func TestEveryPassOfTheVectorsIsJudgedAsTheySay(t *testing.T) {
	v := readVectors(t)
	at := publish(t, v.Sets)
	for _, one := range v.Cases {
		at.what.Store(&served{Set: one.JWKS})
		var now atomic.Int64
		now.Store(one.Now)
		code, pass := said(verifier(t, v, at.URL, &now, nil), one.Pass)
		if code != one.Expect {
			t.Errorf("%s: %s instead of %s", one.Name, code, one.Expect)
		}
		if c := one.Claims; c != nil && pass != (Pass{c.Zone, c.JTI, time.UnixMilli(c.Exp * 1000)}) {
			t.Errorf("%s: %v", one.Name, pass)
		}
	}
}

func TestEveryScenarioOfTheVectors(t *testing.T) {
	v := readVectors(t)
	for _, scenario := range v.Scenarios {
		t.Run(scenario.Name, func(t *testing.T) {
			at := publish(t, v.Sets)
			var now atomic.Int64
			now.Store(v.Epoch)
			made := verifier(t, v, at.URL, &now, nil)
			for i, step := range scenario.Steps {
				if step.Serve != nil {
					at.what.Store(step.Serve)
					// The limit is short only where nothing comes.
					made.keys.client.Timeout = 20 * time.Second
					if step.Serve.Hang || step.Serve.Trickle {
						made.keys.client.Timeout = 500 * time.Millisecond
					}
				}
				if step.Fetches != 0 && at.fetches.Load() != step.Fetches {
					t.Errorf("step %d: %d fetches instead of %d", i, at.fetches.Load(), step.Fetches)
				}
				if step.Pass == nil {
					continue
				}
				now.Store(v.Epoch + step.At)
				_, err := made.Accept(context.Background(), *step.Pass)
				code, after := "ok", ""
				if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
					reply := httptest.NewRecorder()
					refusal.ServeHTTP(reply, nil)
					code, after = string(refusal.Code), reply.Header().Get("Retry-After")
				}
				if code != step.Expect || step.RetryAfter != 0 && after != strconv.Itoa(step.RetryAfter) {
					t.Errorf("step %d, at %d s: %s, again after %q s, instead of %s, %d", i, step.At, code, after, step.Expect, step.RetryAfter)
				}
			}
		})
	}
}

// ready is a verifier of the first pass of the vectors.
func ready(t *testing.T, spend Spend) (vectors, *publisher, *Verifier) {
	v := readVectors(t)
	at := publish(t, v.Sets)
	at.what.Store(&served{Set: "all"})
	var now atomic.Int64
	now.Store(v.Cases[0].Now)
	return v, at, verifier(t, v, at.URL, &now, spend)
}

func TestOfAHundredWhoShowOnePassAtOnceOneEnters(t *testing.T) {
	v, at, made := ready(t, nil)
	if entered := enterAtOnce(v.Cases[0].Pass, made, made); entered != 1 {
		t.Errorf("%d entered", entered)
	}
	if at.fetches.Load() != 1 {
		t.Errorf("the keys were fetched %d times", at.fetches.Load())
	}
}

// enterAtOnce returns how many of a hundred callers entered, half of them by each verifier.
func enterAtOnce(pass string, verifiers ...*Verifier) int64 {
	var wait sync.WaitGroup
	var entered atomic.Int64
	for i := 0; i < 100; i++ {
		wait.Add(1)
		go func(v *Verifier) {
			defer wait.Done()
			if code, _ := said(v, pass); code == "ok" {
				entered.Add(1)
			}
		}(verifiers[i%len(verifiers)])
	}
	wait.Wait()
	return entered.Load()
}

func TestNobodyWaitsLongForAWeirThatHangsWhereTheKeyIsKnown(t *testing.T) {
	v := readVectors(t)
	at := publish(t, v.Sets)
	at.what.Store(&served{Set: "all"})
	var now atomic.Int64
	now.Store(v.Cases[0].Now)
	made := verifier(t, v, at.URL, &now, nil)
	made.keys.client.Timeout = 10 * time.Second
	if code, _ := said(made, v.Cases[0].Pass); code != "ok" {
		t.Fatal(code)
	}
	at.what.Store(&served{Hang: true})
	now.Add(61)
	begun := time.Now()
	for i := 0; i < 4; i++ {
		if code, _ := said(made, v.Cases[0].Pass); code != "spent" {
			t.Error(code)
		}
	}
	// It waits for a fifth of the limit, and once.
	if took := time.Since(begun); at.fetches.Load() != 2 || took > 7500*time.Millisecond {
		t.Errorf("%d fetches, %v", at.fetches.Load(), took)
	}
}

func TestAnUnknownKeyIsNotWaitedForLongerThanItsCaller(t *testing.T) {
	v, at, made := ready(t, nil)
	at.what.Store(&served{Hang: true})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for at.fetches.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	begun := time.Now()
	_, err := made.Accept(ctx, v.Cases[0].Pass)
	var refusal *Refusal
	if took := time.Since(begun); !errors.As(err, &refusal) || refusal.Code != KeysAway || took > 10*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

func TestTheMemoryHasALimitAndForgetsWhatHasExpired(t *testing.T) {
	now := time.Unix(0, 0)
	m := newMemory(func() time.Time { return now }, 2)
	spend := func(key string, until int64) string {
		first, err := m.spend(context.Background(), key, time.Unix(until, 0))
		return fmt.Sprint(first, err != nil)
	}
	said := []string{spend("a", 10), spend("a", 10), spend("b", 20), spend("c", 30)}
	now = time.Unix(11, 0)
	said = append(said, spend("c", 30), spend("b", 20))
	if want := "[true false false false true false false true true false false false]"; fmt.Sprint(said) != want {
		t.Errorf("%v instead of %s", said, want)
	}
}

func TestAFullMemoryLooksForWhatHasExpiredOnceInASecondAtMost(t *testing.T) {
	var now time.Time
	m := newMemory(func() time.Time { return now }, 2)
	said := []bool{}
	for _, step := range []struct {
		at, until int64
		key       string
	}{{0, 10, "a"}, {0, 11, "b"}, {11, 30, "c"}, {12, 30, "d"}, {13, 30, "d"}} {
		now = time.Unix(step.at, 0)
		first, err := m.spend(context.Background(), step.key, time.Unix(step.until, 0))
		said = append(said, first && err == nil)
	}
	if fmt.Sprint(said) != "[true true true false true]" {
		t.Error(said)
	}
}

func TestNobodyEntersWithoutTheSharedRecord(t *testing.T) {
	away := errors.New("no Redis")
	v, _, made := ready(t, func(_ context.Context, key string, until time.Time) (bool, error) {
		if key != "weir:spent:TEST_ZONE/0000002a/1" || until.Unix() != 1_900_000_365 {
			t.Errorf("asked for %s until %d", key, until.Unix())
		}
		return false, away
	})
	_, err := made.Accept(context.Background(), v.Cases[0].Pass)
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Code != RecordAway || refusal.Status() != 503 || !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
}

func TestARecordThatDoesNotAnswerIsAway(t *testing.T) {
	v, _, made := ready(t, func(ctx context.Context, _ string, _ time.Time) (bool, error) {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(20 * time.Second):
			return true, nil
		}
	})
	made.spendLimit = 50 * time.Millisecond
	if code, _ := said(made, v.Cases[0].Pass); code != "record_away" {
		t.Error(code)
	}
}

// record is that of docs/app/clients.md, with a client that repeats a command whose reply is lost, as go-redis does. now is the clock of the
// service.
func record(address, prefix string, now func() time.Time) Spend {
	return func(_ context.Context, key string, until time.Time) (bool, error) {
		random := make([]byte, 16)
		if _, err := rand.Read(random); err != nil {
			return false, err
		}
		mine := hex.EncodeToString(random)
		life := until.Sub(now()).Milliseconds()
		command := []string{"SET", prefix + key, mine, "NX", "GET", "PX", strconv.FormatInt(life, 10)}
		found, err := redis(address, command...)
		if err != nil {
			found, err = redis(address, command...)
		}
		return err == nil && (found == "" || found == mine), err
	}
}

func TestAPassIsNotTakenForASpentOneWhereAReplyOfRedisIsLost(t *testing.T) {
	address := strings.TrimPrefix(os.Getenv("PASSES_REDIS"), "redis://")
	if address == "" {
		t.Skip("PASSES_REDIS names no Redis")
	}
	v, _, made := ready(t, record(loseAReply(t, address), "go-lost:", time.Now))
	first, _ := said(made, v.Cases[0].Pass)
	again, _ := said(made, v.Cases[0].Pass)
	if first != "ok" || again != "spent" {
		t.Errorf("%s, and then %s", first, again)
	}
}

// loseAReply is a proxy before a Redis. Its first command reaches Redis, but the connection ends before the reply.
func loseAReply(t *testing.T, address string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for isFirst := true; ; isFirst = false {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", address)
			if err != nil {
				near.Close()
				continue
			}
			end := func() {
				near.Close()
				far.Close()
			}
			go func() {
				_, _ = io.Copy(far, near)
				end()
			}()
			go func(isFirst bool) {
				if isFirst {
					_, _ = far.Read(make([]byte, 1))
				} else {
					_, _ = io.Copy(near, far)
				}
				end()
			}(isFirst)
		}
	}()
	return listener.Addr().String()
}

func TestServicesThatShareARedisAcceptAPassOnce(t *testing.T) {
	address := strings.TrimPrefix(os.Getenv("PASSES_REDIS"), "redis://")
	if address == "" {
		t.Skip("PASSES_REDIS names no Redis")
	}
	spend := record(address, "go:", time.Now)
	v, _, first := ready(t, spend)
	_, _, second := ready(t, spend)
	if entered := enterAtOnce(v.Cases[0].Pass, first, second); entered != 1 {
		t.Errorf("%d entered", entered)
	}
}

func TestARedisWhoseClockIsAheadDoesNotForgetASpentPass(t *testing.T) {
	address := strings.TrimPrefix(os.Getenv("PASSES_REDIS"), "redis://")
	if address == "" {
		t.Skip("PASSES_REDIS names no Redis")
	}
	now := time.Now().Add(-time.Hour)
	spend := record(address, "go-ahead:", func() time.Time { return now })
	for _, want := range []bool{true, false} {
		if first, err := spend(context.Background(), "a", now.Add(365*time.Second)); first != want || err != nil {
			t.Errorf("%v %v instead of %v", first, err, want)
		}
	}
}

// redis sends one command on a connection of its own, and returns the text that is the reply. Nil is the empty text.
func redis(address string, words ...string) (string, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := connection.Write([]byte(text)); err != nil {
		return "", err
	}
	reader := bufio.NewReader(connection)
	line, err := reader.ReadString('\n')
	if err != nil || line == "$-1\r\n" {
		return "", err
	}
	if !strings.HasPrefix(line, "$") {
		return "", errors.New(line)
	}
	text, err = reader.ReadString('\n')
	return strings.TrimSpace(text), err
}

func TestOptionsThatCannotBeRightAreRefused(t *testing.T) {
	for _, options := range []Options{{Weir: "weir.example", Zone: "Z"}, {Weir: "ftp://w", Zone: "Z"}, {Weir: "http://w"}} {
		if _, err := New(options); err == nil {
			t.Errorf("%v is accepted", options)
		}
	}
}

func TestAPassLeadsToTheHandlerAndARefusalIsClear(t *testing.T) {
	v, at, made := ready(t, nil)
	handler := made.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pass, ok := From(r.Context())
		fmt.Fprint(w, pass.JTI, ok)
	}))
	ask := func(handler http.Handler, authorizations ...string) *http.Response {
		request := httptest.NewRequest("POST", "/enter", nil)
		for _, one := range authorizations {
			request.Header.Add("Authorization", one)
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return recorder.Result()
	}
	good := "Bearer " + v.Cases[0].Pass
	if twice := ask(handler, good, "Bearer hello"); twice.StatusCode != 401 {
		t.Errorf("two headers: %d", twice.StatusCode)
	}
	reply := ask(handler, good)
	if body, _ := bufio.NewReader(reply.Body).ReadString('!'); reply.StatusCode != 200 || body != v.Cases[0].Claims.JTI+"true" {
		t.Errorf("%d %s", reply.StatusCode, body)
	}
	for _, want := range []struct{ authorization, code, header string }{
		{"", "no_pass", `Bearer realm="weir"`},
		{"Basic YTpi", "no_pass", `Bearer realm="weir"`},
		{good, "spent", `Bearer realm="weir", error="invalid_token", error_description="The pass was used already"`},
		{"bearer hello", "unreadable", `Bearer realm="weir", error="invalid_token", error_description="This is not a pass"`},
	} {
		reply := ask(handler, want.authorization)
		var problem struct {
			Code, Title string
			Status      int
		}
		if err := json.NewDecoder(reply.Body).Decode(&problem); err != nil {
			t.Fatal(err)
		}
		head := reply.Header
		if reply.StatusCode != 401 || problem.Status != 401 || problem.Code != want.code || head.Get("WWW-Authenticate") != want.header ||
			head.Get("Content-Type") != "application/problem+json" || head.Get("Cache-Control") != "no-store" {
			t.Errorf("%q: %d %v %v", want.authorization, reply.StatusCode, problem, head)
		}
	}
	at.what.Store(&served{Status: 500})
	var now atomic.Int64
	now.Store(v.Cases[0].Now)
	away := ask(verifier(t, v, at.URL, &now, nil).Handler(handler), good)
	if away.StatusCode != 503 || away.Header.Get("Retry-After") != "10" {
		t.Errorf("%d %v", away.StatusCode, away.Header)
	}
}
