package ec2

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// botocore is an STS whose signatures AWS' SDK for Python makes: it knows sessions by their tokens,
// and compares its own signature, for the host, the method and the headers that came, with the
// signature. It accepts one for 15 minutes.
type botocore struct {
	sessions map[string]known
	now      time.Time
	in       *json.Encoder
	out      *bufio.Scanner
}

// python is the one that has botocore: Debian's may not be the first in PATH.
func python() string {
	for _, candidate := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(candidate, "-c", "import botocore.auth").Run() == nil {
			return candidate
		}
	}
	return ""
}

func newBotocore(t *testing.T, sessions map[string]known) *botocore {
	t.Helper()
	program := python()
	if program == "" {
		t.Skip("no botocore: apt-get install -y python3 python3-botocore")
	}
	cmd := exec.Command(program, "testdata/sign.py")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	return &botocore{sessions, testTime, json.NewEncoder(in), bufio.NewScanner(out)}
}

// signature is what botocore signs.
func (b *botocore) signature(r *http.Request, k known) (string, error) {
	q := r.URL.Query()
	headers := map[string]string{}
	for name := range strings.SplitSeq(q.Get(signed), ";") {
		if name != "host" {
			headers[name] = r.Header.Get(name)
		}
	}
	for name := range q {
		if strings.HasPrefix(name, "X-Amz-") {
			q.Del(name)
		}
	}
	if err := b.in.Encode(map[string]any{"method": r.Method, "url": "https://" + r.URL.Host + r.URL.Path + "?" + q.Encode(), "headers": headers,
		"region": strings.Split(r.URL.Host, ".")[1], "date": r.URL.Query().Get(date), "access": k.AccessKeyID, "secret": k.SecretAccessKey, "token": k.SessionToken}); err != nil {
		return "", err
	}
	if !b.out.Scan() {
		return "", io.ErrUnexpectedEOF
	}
	return b.out.Text(), nil
}

// RoundTrip answers as the real one does.
func (b *botocore) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	at, _ := time.Parse(timeFormat, q.Get(date)) // the zero time if it is absent
	if b.now.Sub(at).Abs() > goodFor {
		return answer(http.StatusForbidden, fault("SignatureDoesNotMatch")), nil
	}
	for _, k := range b.sessions {
		if k.SessionToken != q.Get(token) {
			continue
		}
		want, err := b.signature(r, k)
		if err != nil {
			return nil, err
		}
		if want == q.Get(signature) {
			return answer(http.StatusOK, good(k.ARN)), nil
		}
		return answer(http.StatusForbidden, fault("SignatureDoesNotMatch")), nil
	}
	return answer(http.StatusForbidden, fault("InvalidClientTokenId")), nil
}

// TestBotocore: an STS that another implementation of Signature Version 4 speaks for admits and
// refuses the same, also where the evidence comes a second time, in its window and after it.
func TestBotocore(t *testing.T) {
	l := newLab(t)
	sts := newBotocore(t, sessions())
	p := l.platform(t, sts)
	for _, a := range attacks() {
		evidence := l.good()
		a.make(evidence)
		if err := verify(p, evidence.marshal(), testTime); (err == nil) != (a.want == "") || err != nil && !errors.Is(err, a.want) {
			t.Errorf("%s: %v, want %q", a.name, err, a.want)
		}
	}
	data := l.good().marshal()
	for age, want := range map[time.Duration]refusal.Check{0: "", goodFor - time.Second: "", goodFor: checkTime, goodFor + time.Second: checkTime, 24 * time.Hour: checkTime} {
		sts.now = testTime.Add(age)
		err := verify(p, data, sts.now)
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, want) || !strings.Contains(err.Error(), "file again")) {
			t.Errorf("after %s: %v, want %q", age, err, want)
		}
	}
	sts.now = testTime.Add(goodFor + time.Second) // whose clock is ahead of ours
	if err := verify(p, data, testTime.Add(goodFor-time.Second)); !errors.Is(err, checkRefused) || !strings.Contains(err.Error(), "file again") {
		t.Errorf("late by STS' clock: %v", err)
	}
	sts.now = testTime
	for name, sent := range map[string]func(*http.Request){
		"another host": func(r *http.Request) { r.URL.Host = "sts.us-west-2.amazonaws.com" },
		"another path": func(r *http.Request) { r.URL.Path = "/x" },
		"another action": func(r *http.Request) {
			r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "GetCallerIdentity", "GetSessionToken", 1)
		},
		"another method":  func(r *http.Request) { r.Method = http.MethodPost },
		"another value":   func(r *http.Request) { r.Header.Set(valueHeader, strings.Repeat("00", valueSize)) },
		"without a value": func(r *http.Request) { r.Header.Del(valueHeader) },
	} {
		err := verify(l.platform(t, stsFunc(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			sent(r)
			return sts.RoundTrip(r)
		})), data, testTime)
		if !errors.Is(err, checkRefused) {
			t.Errorf("%s on the way: %v", name, err)
		}
	}
}

// TestBotocoreJoins: so does a whole join of an instance that asks its metadata server. Its answer is
// good for the same key as often as it is decided, for 15 minutes, and then has to be filed again.
func TestBotocoreJoins(t *testing.T) {
	l := newLab(t)
	server := l.cloud.Serve(machine("machine-0"))
	defer server.Close()
	source, err1 := NewSource(SourceOptions{URL: server.URL, Now: l.cloud.Now})
	prover, err2 := document.NewProver(Provider, 1, source)
	attester, err3 := attest.NewAttester(prover)
	c, err4 := source.credentials(t.Context())
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	sts := newBotocore(t, map[string]known{"mine": {c.AccessKeyID, c.SecretAccessKey, c.SessionToken,
		"arn:aws:sts::" + testAccount + ":assumed-role/" + testRole + "/" + machine("machine-0").InstanceID}})
	ring := attest.NewRingKey(testTime.Add(-time.Hour))
	plane := func(age time.Duration) *attest.Verifier {
		sts.now = testTime.Add(age)
		return l.plane(t, ring, sts, sts.now)
	}
	key, request := newRequest(t)
	subject := attest.Subject{Request: request, SignerName: testSigner, ClusterID: "cluster-1"}
	hello := testkit.Must(attester.Hello(t.Context(), subject))
	challenge := testkit.Must(plane(0).Challenge(t.Context(), filed(hello, testTime)))
	answer := testkit.Must(attester.Answer(t.Context(), challenge, key, subject))
	for age, want := range map[time.Duration]refusal.Check{0: "", time.Minute: "", goodFor - time.Second: "", goodFor: checkTime, time.Hour: checkTime} {
		result, err := plane(age).Verify(t.Context(), filed(answer, testTime))
		if (err == nil) != (want == "") || err != nil && !errors.Is(err, want) || err == nil && result.Machine != "aws:aws/us-east-2/i-0123456789abcdef0" {
			t.Errorf("after %s: %v, want %q", age, err, want)
		}
	}
	if _, err := plane(11*time.Minute).Verify(t.Context(), filed(answer, sts.now)); !errors.Is(err, attest.CheckAnswerLate) {
		t.Errorf("filed again after the challenge's window: %v", err)
	}
}
