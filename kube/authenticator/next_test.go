package authenticator

import (
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/nodecert"
)

// TestNext is the specification of what daemon and plugin do. Times are relative to now, which
// is noon. A certificate has come an hour ago, is to be renewed in two, and ends in three,
// unless a row says otherwise.
func TestNext(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	const (
		day  = 24 * time.Hour
		none = "" // no certificate works
	)
	// times are when a certificate came, is to be renewed, and ends.
	type times struct{ received, renew, end time.Duration }
	good := &times{-time.Hour, 2 * time.Hour, 3 * time.Hour}
	fresh := &times{-time.Minute, 2 * time.Hour, 3 * time.Hour}
	due := &times{-3 * time.Hour, 0, time.Hour}
	ended := &times{-3 * time.Hour, -time.Hour, -time.Second}
	type row struct {
		have, previous *times
		asked, lead    time.Duration
		// The state. refused has c for the certificate in hand, p for the one before.
		failures            int
		last, next, checked time.Duration // 0: never
		refused             string
		wrong, password     string
		serving             bool // which no API server can be asked about

		use string // client, previous or none
		do  action
		at  time.Duration // where do is wait
	}
	rows := map[string]row{
		// When there is nothing to use.
		"without a certificate, one is got at once":                   {use: none, do: renew},
		"after a failure, once its pause is over":                     {failures: 1, last: -2 * time.Second, next: -time.Second, use: none, do: renew},
		"not during the pause":                                        {failures: 1, last: -time.Second, next: time.Second, use: none, at: time.Second},
		"not during the pause of a denial":                            {failures: 9, last: -time.Second, next: 5 * time.Minute, use: none, at: 5 * time.Minute},
		"exactly when the pause ends":                                 {failures: 1, last: -time.Second, next: -time.Nanosecond, use: none, do: renew},
		"a certificate that has ended is not used":                    {have: ended, use: none, do: renew},
		"a certificate that ends within two seconds is not used":      {have: &times{-time.Hour, -time.Minute, 2 * time.Second}, use: none, do: renew},
		"a certificate that has ended does not shorten the pause":     {have: ended, failures: 2, last: -time.Second, next: time.Second, use: none, at: time.Second},
		"two that have ended are not used":                            {have: ended, previous: ended, use: none, do: renew},
		"where a serving certificate is missing, it is got at once":   {serving: true, use: none, do: renew},
		"a process that was killed in an attempt leaves its pause":    {failures: 1, last: -100 * time.Millisecond, next: 900 * time.Millisecond, use: none, at: 900 * time.Millisecond},
		"many failures make no pause longer than that which is noted": {failures: 1 << 30, last: -time.Minute, next: -time.Second, use: none, do: renew},

		// A certificate that works.
		"a certificate is used until its renewal":         {have: fresh, use: "client", at: 2 * time.Hour},
		"at its time it is renewed":                       {have: due, use: "client", do: renew},
		"and a second before it is not":                   {have: &times{-time.Minute, time.Second, time.Hour}, use: "client", at: time.Second},
		"after its time it is used still":                 {have: &times{-3 * time.Hour, -time.Hour, time.Minute}, use: "client", do: renew},
		"during a pause it is used, and not renewed":      {have: due, failures: 3, last: -time.Second, next: 4 * time.Second, checked: -time.Second, use: "client", at: 4 * time.Second},
		"a pause does not put off what is due later":      {have: fresh, next: time.Second, last: -time.Second, use: "client", at: 2 * time.Hour},
		"a success has a pause too":                       {have: &times{-time.Second, -time.Millisecond, time.Minute}, last: -500 * time.Millisecond, next: 500 * time.Millisecond, use: "client", at: 500 * time.Millisecond},
		"which ends":                                      {have: &times{-2 * time.Second, -time.Second, time.Minute}, last: -2 * time.Second, next: -time.Second, use: "client", do: renew},
		"failures from before its time matter no more":    {have: fresh, failures: 5, last: -time.Hour, next: -time.Hour, use: "client", at: 2 * time.Hour},
		"the daemon renews it a minute before the plugin": {have: &times{-time.Hour, time.Minute, time.Hour}, lead: time.Minute, use: "client", do: renew},
		"and not earlier":                                 {have: &times{-time.Minute, time.Minute + time.Second, time.Hour}, lead: time.Minute, use: "client", at: time.Second},
		"of a short one it is a twentieth before":         {have: &times{-time.Minute, 4 * time.Minute, 9 * time.Minute}, lead: time.Minute, use: "client", at: 4*time.Minute - 30*time.Second},
		"a serving certificate is renewed at its time":    {serving: true, have: due, use: "client", do: renew},
		"and kept until then":                             {serving: true, have: good, use: "client", at: 2 * time.Hour},

		// Whatever it says of itself, it is renewed by the lifetime that was asked for.
		"one of a hundred years is renewed after four fifths of a day": {have: &times{-time.Minute, 60 * 365 * day, 100 * 365 * day}, asked: day, use: "client", at: day/5*4 - time.Minute},
		"and at once when that is over":                                {have: &times{-day, 60 * 365 * day, 100 * 365 * day}, asked: day, use: "client", do: renew},
		"one that is shorter than asked for has its own time":          {have: fresh, asked: day, use: "client", at: 2 * time.Hour},
		"where none was asked for, it has its own time":                {have: &times{-time.Minute, 60 * 365 * day, 100 * 365 * day}, use: "client", at: 60 * 365 * day},
		"a lifetime that is now asked for is that of the one in hand":  {have: &times{-2 * time.Hour, 20 * time.Hour, day}, asked: time.Hour, use: "client", do: renew},
		"the daemon is before that time too":                           {have: &times{-time.Minute, 365 * day, 500 * day}, asked: time.Hour, lead: time.Minute, use: "client", at: 46 * time.Minute},

		// Clocks.
		"a pause until 2036 was noted by a clock that was ahead":         {failures: 3, last: 10 * 365 * day, next: 10*365*day + 4*time.Second, use: none, do: renew},
		"also where a certificate is due":                                {have: due, failures: 3, last: 10 * 365 * day, next: 10*365*day + 4*time.Second, use: "client", do: renew},
		"a pause from the future counts not, however short":              {failures: 3, last: 2 * time.Minute, next: 3 * time.Minute, use: none, do: renew},
		"a pause longer than any counts not":                             {failures: 3, last: -time.Second, next: 5*time.Minute + time.Second, use: none, do: renew},
		"a clock that was set back by seconds does not end a pause":      {failures: 3, last: 10 * time.Second, next: 14 * time.Second, use: none, at: 14 * time.Second},
		"a pause from the year 1":                                        {failures: 3, last: -200 * 365 * day, next: -200 * 365 * day, use: none, do: renew},
		"one that has come in the future is due, as the clock went back": {have: &times{30 * day, 30*day + time.Hour, 30*day + 2*time.Hour}, use: "client", do: renew},
		"but not during a pause":                                         {have: &times{30 * day, 30*day + time.Hour, 30*day + 2*time.Hour}, failures: 1, last: -time.Second, next: time.Second, checked: -time.Second, use: "client", at: time.Second},
		"with a pause from the future also, it is due":                   {have: &times{30 * day, 30*day + time.Hour, 30*day + 2*time.Hour}, failures: 1, last: 30 * day, next: 30 * day, use: "client", do: renew},
		"one that has come in some seconds is not":                       {have: &times{10 * time.Second, time.Hour, 2 * time.Hour}, use: "client", at: time.Hour},
		"with a clock ahead by more than its lifetime it is not used":    {have: &times{-10 * 365 * day, -10*365*day + time.Hour, -10*365*day + 2*time.Hour}, use: none, do: renew},

		// Whether it works.
		"the API server is asked about one of some minutes":  {have: good, use: "client", do: ask},
		"not about one that has just come, and worked":       {have: fresh, use: "client", at: 2 * time.Hour},
		"and not again within five minutes":                  {have: good, checked: -time.Minute, use: "client", at: 2 * time.Hour},
		"but after five minutes":                             {have: good, checked: -5 * time.Minute, use: "client", do: ask},
		"again if it was asked in the future":                {have: good, checked: time.Hour, use: "client", do: ask},
		"not if it is renewed now in any case":               {have: due, use: "client", do: renew},
		"also while a renewal has to wait":                   {have: due, failures: 1, last: -time.Second, next: time.Second, use: "client", do: ask},
		"no API server is asked about a serving certificate": {serving: true, have: good, use: "client", at: 2 * time.Hour},
		"nor about nothing":                                  {failures: 1, last: -time.Second, next: time.Second, use: none, at: time.Second},

		// A certificate that the API server rejected (401).
		"one that was refused is renewed now":                   {have: good, refused: "c", use: "client", do: renew},
		"but not during a pause, and it is not checked again":   {have: good, refused: "c", failures: 1, last: -time.Second, next: time.Second, use: "client", at: time.Second},
		"until then the one before is used":                     {have: good, previous: good, refused: "c", failures: 1, last: -time.Second, next: time.Second, checked: -time.Second, use: "previous", at: time.Second},
		"which the API server is asked about":                   {have: good, previous: good, refused: "c", failures: 1, last: -time.Second, next: time.Second, use: "previous", do: ask},
		"and it is renewed now":                                 {have: good, previous: good, refused: "c", use: "previous", do: renew},
		"where both were refused, the one in hand is used":      {have: good, previous: good, refused: "cp", failures: 1, last: -time.Second, next: time.Second, use: "client", at: time.Second},
		"where the one before has ended, a refused one is used": {have: good, previous: ended, refused: "c", use: "client", do: renew},
		"that the one before was refused does not matter":       {have: fresh, previous: good, refused: "p", use: "client", at: 2 * time.Hour},
		"a refused one that has ended is not used":              {have: ended, refused: "c", use: none, do: renew},
		"refused serving certificates there are not":            {serving: true, have: good, refused: "p", use: "client", at: 2 * time.Hour},

		// The one before.
		"it is not used where the one in hand works":                {have: fresh, previous: good, use: "client", at: 2 * time.Hour},
		"it is used, and renewed, where the one in hand is missing": {previous: good, use: "previous", do: renew},
		"also where the one in hand has ended":                      {have: ended, previous: good, use: "previous", do: renew},
		"and during a pause":                                        {previous: good, failures: 1, last: -time.Second, next: time.Second, checked: -time.Second, use: "previous", at: time.Second},
		"one that was refused is better than none":                  {previous: good, refused: "p", use: "previous", do: renew},

		// A wrong password.
		"a password that was wrong is not tried again":  {failures: 1, last: -time.Hour, next: -time.Hour, wrong: "x", password: "x", use: none, at: lastPause},
		"not even where the certificate in hand is due": {have: due, failures: 1, last: -time.Hour, next: -time.Hour, checked: -time.Second, wrong: "x", password: "x", use: "client", at: lastPause},
		"not even where it was refused":                 {have: good, refused: "c", wrong: "x", password: "x", use: "client", at: lastPause},
		"another password is tried at once":             {failures: 1, last: -time.Hour, next: -time.Hour, wrong: "x", password: "y", use: none, do: renew},
		"after the pause":                               {failures: 1, last: -time.Second, next: time.Second, wrong: "x", password: "y", use: none, at: time.Second},
		"where none was wrong, a password is tried":     {password: "y", use: none, do: renew},
	}
	if len(rows) < 60 {
		t.Errorf("%d rows", len(rows))
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			pair := func(of *times, raw string) *certstore.Pair {
				if of == nil {
					return nil
				}
				return &certstore.Pair{Leaf: &x509.Certificate{Raw: []byte(raw), NotAfter: noon.Add(of.end)}, Received: noon.Add(of.received), Renew: noon.Add(of.renew)}
			}
			at := func(d time.Duration) time.Time {
				if d == 0 {
					return time.Time{}
				}
				return noon.Add(d)
			}
			c := certificates{have: pair(r.have, "c"), previous: pair(r.previous, "p"), wanted: &nodecert.Wanted{Purpose: csr.PurposeClient, Lifetime: r.asked}, lead: r.lead, password: r.password}
			if r.serving {
				c.wanted.Purpose = csr.PurposeServing
			}
			state := attempts{Failures: r.failures, Last: at(r.last), Next: at(r.next), Checked: at(r.checked), Password: r.wrong}
			for _, raw := range r.refused {
				state.Refused = append(state.Refused, csr.CredentialID(&x509.Certificate{Raw: []byte(string(raw))}))
			}
			got := next(state, c, noon)
			use := map[*certstore.Pair]string{nil: none, c.have: "client", c.previous: "previous"}
			use[nil] = none
			if use[got.use] != r.use || got.do != r.do || r.do == wait && !got.at.Equal(noon.Add(r.at)) {
				t.Errorf("use %q, do %d, at %s from now, want %q, %d, %s", use[got.use], got.do, got.at.Sub(noon), r.use, r.do, r.at)
			}
		})
	}
}

func TestPause(t *testing.T) {
	for failures, want := range map[int]time.Duration{-1: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 6: 30 * time.Second, 1 << 40: 30 * time.Second} {
		for range 20 {
			if d := pause(failures, nil); d < want/2 || d > want {
				t.Errorf("%d failures: %s, want up to %s", failures, d, want)
			}
		}
	}
	if d := pause(50, errors.Join(errors.New("x"), checkDenied)); d < lastDenied/2 || d > lastDenied {
		t.Errorf("denied: %s", d)
	}
	if d := pause(50, certstore.CheckPair); d < lastUnfit/2 || d > lastUnfit {
		t.Errorf("unfit: %s", d)
	}
}
