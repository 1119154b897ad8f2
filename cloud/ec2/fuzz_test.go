package ec2

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// refused reports whether there is an error, which must be a refusal.
func refused(t *testing.T, err error) bool {
	t.Helper()
	if _, ok := errors.AsType[*refusal.Error](err); err != nil && !ok {
		t.Errorf("no refusal: %v", err)
	}
	return err != nil
}

// FuzzEvidence: parsed evidence is written again byte by byte, and so is its request, from its parts.
func FuzzEvidence(f *testing.F) {
	testkit.BeginFuzz(f)
	l := newLab(f)
	for _, a := range attacks() {
		p := l.good()
		a.make(p)
		f.Add(p.marshal())
	}
	p := l.platform(f, imitation(sessions()))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := parseEvidence(data)
		if refused(t, err) {
			return
		}
		if again, err := e.marshal(); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%v\n%x\n%x", err, again, data)
		}
		s, err := p.read(data)
		if refused(t, err) {
			return
		}
		again := evidence{s.pkcs7, s.request.sent(s.endpoint)}
		if text, err := again.marshal(); err != nil || !bytes.Equal(text, data) {
			t.Errorf("%v\n%x\n%x", err, text, data)
		}
		_, err = p.Verify(t.Context(), data, inquiry(testTime))
		refused(t, err)
	})
}

// FuzzRequest: one text stands for one request, and is for the endpoint.
func FuzzRequest(f *testing.F) {
	l := newLab(f)
	for _, a := range attacks() {
		p := l.good()
		a.make(p)
		if e, err := parseEvidence(p.marshal()); err == nil && len(e.request.headers) == 1 {
			f.Add(e.request.method, e.request.url, e.request.headers[0].name, e.request.headers[0].value)
		}
	}
	e, err := endpointOf(testRegion)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, url, name, value string) {
		s := sentRequest{method, url, []header{{name, value}}}
		r, err := readRequest(&s, e)
		if refused(t, err) {
			return
		}
		again := r.sent(e)
		if again.method != method || again.url != url || again.headers[0] != s.headers[0] || !strings.HasPrefix(url, "https://"+e.host+"/?Action=GetCallerIdentity&Version=2011-06-15&") {
			t.Errorf("%q, read as %q", s, again)
		}
	})
}

// FuzzAnswer: an answer that is read has the ARN in it, once.
func FuzzAnswer(f *testing.F) {
	for _, k := range sessions() {
		f.Add([]byte(good(k.ARN)))
	}
	f.Add([]byte(fault("AccessDenied")))
	f.Add([]byte(`<a xmlns="` + namespace + `"><b><c>d</c></b></a>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseAnswer(data)
		if refused(t, err) {
			return
		}
		if n := bytes.Count(data, []byte("<GetCallerIdentityResult")); n != 1 || c.account == "" || c.session == "" {
			t.Errorf("%d results, %+v", n, c)
		}
		if _, fault := parseFault(data); fault {
			t.Error("a result and a refusal")
		}
	})
}

// FuzzCaller: an ARN that is read is that of its parts.
func FuzzCaller(f *testing.F) {
	for _, k := range sessions() {
		f.Add(k.ARN)
	}
	f.Add(testRoles[0])
	f.Fuzz(func(t *testing.T, arn string) {
		c, err := parseCaller(arn)
		if refused(t, err) {
			return
		}
		if again := "arn:" + c.partition + ":sts::" + c.account + ":assumed-role/" + c.role + "/" + c.session; again != arn {
			t.Errorf("%q, read as %q", arn, again)
		}
		if _, ok := parseRole(arn); ok {
			t.Errorf("%q is a role, too", arn)
		}
	})
}
