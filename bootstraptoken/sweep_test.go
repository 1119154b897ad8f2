package bootstraptoken

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// sweepObject is a token Secret of the ID that ends after d; 0 means never.
func sweepObject(t testing.TB, id string, d time.Duration) *Object {
	t.Helper()
	s := &Secret{Token: mustParse(t, id+"."+testSecret)}
	if d != 0 {
		s.Expiration = testNow.Add(d)
	}
	o, err := s.Object()
	if err != nil {
		t.Fatal(err)
	}
	o.UID, o.ResourceVersion = "uid-"+id, "7"
	return o
}

func TestSweep(t *testing.T) {
	foreign, elsewhere, deleted := sweepObject(t, "foreig", -time.Hour), sweepObject(t, "elsewh", -time.Hour), sweepObject(t, "delete", -time.Hour)
	foreign.Type, elsewhere.Namespace, deleted.Deleted = "Opaque", "default", &testNow
	unreadable, empty := sweepObject(t, "unread", 0), sweepObject(t, "empty0", 0)
	setData(keyExpiration, "tomorrow")(unreadable)
	setData(keyExpiration, "")(empty)
	misnamed := sweepObject(t, "misnam", -time.Hour)
	misnamed.Name = "misnamed-s-token"
	misnamed.Data.Reveal()[keyGroups] = []byte("nonsense")

	found, err := Sweep([]*Object{
		sweepObject(t, "past00", -time.Second), foreign, sweepObject(t, "never0", 0), sweepObject(t, "later0", 20*time.Minute), nil,
		sweepObject(t, "soon00", time.Second), sweepObject(t, "now000", -time.Nanosecond), elsewhere, deleted, unreadable, empty, misnamed,
	}, testNow)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range found.Delete {
		names = append(names, o.Namespace+" "+o.Name+" "+o.UID+" "+o.ResourceVersion)
	}
	want := []string{
		Namespace + " bootstrap-token-past00 uid-past00 7",
		Namespace + " bootstrap-token-now000 uid-now000 7",
		Namespace + " misnamed-s-token uid-misnam 7",
	}
	if !slices.Equal(names, want) {
		t.Errorf("deletes %v, want %v", names, want)
	}
	if !found.Next.Equal(testNow.Add(time.Second)) {
		t.Errorf("next is %v", found.Next)
	}
	if len(found.Refused) != 2 || found.Refused[0].Name != unreadable.Name || found.Refused[1].Name != empty.Name {
		t.Fatalf("refused %v", found.Refused)
	}
	for _, refused := range found.Refused {
		if !errors.Is(refused.Err, checkExpiration) {
			t.Error(refused.Err)
		}
	}
}

func TestSweepNext(t *testing.T) {
	for _, test := range []struct {
		ends []time.Duration
		want time.Duration // 0: never
	}{
		{nil, 0},
		{[]time.Duration{0}, 0},
		{[]time.Duration{-time.Hour}, 0},
		{[]time.Duration{time.Minute, 2 * time.Minute}, time.Minute},
		{[]time.Duration{2 * time.Minute, time.Minute}, time.Minute},
		{[]time.Duration{maxSweepWait}, maxSweepWait},
		{[]time.Duration{maxSweepWait + time.Second}, maxSweepWait}, // a clock may be set meanwhile
		{[]time.Duration{24 * 365 * 200 * time.Hour}, maxSweepWait},
	} {
		t.Run(fmt.Sprint(test.want), func(t *testing.T) {
			var objects []*Object
			for _, end := range test.ends {
				objects = append(objects, sweepObject(t, "abcdef", end))
			}
			found, err := Sweep(objects, testNow)
			if err != nil {
				t.Fatal(err)
			}
			if test.want == 0 && !found.Next.IsZero() || test.want != 0 && !found.Next.Equal(testNow.Add(test.want)) {
				t.Errorf("%v: %v, want in %v", test.ends, found.Next, test.want)
			}
		})
	}
}

// TestSweepBoundary: what Sweep deletes has expired for Authenticate too, and the reverse.
func TestSweepBoundary(t *testing.T) {
	o := goodObject(t)
	for _, d := range []time.Duration{-time.Nanosecond, 0, time.Nanosecond} {
		now := testNow.Add(time.Hour + d)
		found, err := Sweep([]*Object{o}, now)
		_, authErr := Authenticate(t.Context(), testToken, getting(o), now)
		if err != nil || (len(found.Delete) == 1) != (d >= 0) || errors.Is(authErr, checkExpired) != (d >= 0) {
			t.Errorf("%v: deletes %v, %v; authenticate: %v", d, found.Delete, err, authErr)
		}
	}
}

// TestSweepUntilItIsDone: a caller that looks again at Next deletes every token at the instant
// of its end, and a token that was not deleted is named again.
func TestSweepUntilItIsDone(t *testing.T) {
	objects := []*Object{sweepObject(t, "aaaaaa", 90*time.Minute), sweepObject(t, "bbbbbb", time.Minute), sweepObject(t, "cccccc", 3*time.Hour)}
	var log []string
	for now := testNow; ; {
		found, err := Sweep(objects, now)
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, now.Format("15:04"))
		for _, d := range found.Delete {
			log = append(log, strings.TrimPrefix(d.Name, secretNamePrefix))
		}
		if found.Next.IsZero() {
			break
		}
		now = found.Next
	}
	if got, want := strings.Join(log, " "), "12:00 12:01 bbbbbb 13:01 bbbbbb 13:30 aaaaaa bbbbbb 14:30 aaaaaa bbbbbb 15:00 aaaaaa bbbbbb cccccc"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSweepWantsAClock(t *testing.T) {
	if found, err := Sweep([]*Object{goodObject(t)}, time.Time{}); !errors.Is(err, refusal.CheckConfig) || found != nil {
		t.Errorf("%v, %v", found, err)
	}
}

func TestList(t *testing.T) {
	foreign, broken, expired := goodObject(t), goodObject(t), goodObject(t)
	foreign.Type = "Opaque"
	broken.Data.Reveal()[keyGroups] = []byte("system:masters")
	expired.Data.Reveal()[keyExpiration] = []byte("2001-01-01T00:00:00Z")
	elsewhere := goodObject(t)
	elsewhere.Namespace = "default"
	secrets, refused := List([]*Object{expired, nil, foreign, broken, elsewhere, goodObject(t)})
	if len(secrets) != 2 || secrets[0].Expiration.Year() != 2001 || secrets[1].Expiration.Year() != 2026 {
		t.Errorf("%v", secrets)
	}
	if len(refused) != 1 || refused[0].Name != broken.Name || !errors.Is(refused[0].Err, checkGroups) {
		t.Errorf("%v", refused)
	}
	if secrets, refused := List(nil); secrets != nil || refused != nil {
		t.Errorf("%v, %v", secrets, refused)
	}
}
