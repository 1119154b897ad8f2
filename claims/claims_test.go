package claims

import (
	"testing"
	"time"
)

func TestNumericDate(t *testing.T) {
	if d := NewNumericDate(time.Time{}); d.Present || !d.Time().IsZero() {
		t.Errorf("the zero time is %+v", d)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 999, time.FixedZone("", 3600))
	d := NewNumericDate(at)
	if !d.Present || d.Unix != at.Unix() || !d.Time().Equal(at.Truncate(time.Second)) || d.Time().Location() != time.UTC {
		t.Errorf("%v is %+v, %v", at, d, d.Time())
	}
	if d := NewNumericDate(time.Unix(0, 0)); !d.Present || d.Time().Unix() != 0 {
		t.Errorf("1970 is %+v", d)
	}
}

func TestMakeSubjectAndCredentialID(t *testing.T) {
	if got := MakeSubject("ns", "sa"); got != "system:serviceaccount:ns:sa" {
		t.Error(got)
	}
	if got := (&Claims{ID: "x"}).CredentialID(); got != "JTI=x" {
		t.Error(got)
	}
	if got := (&Claims{}).CredentialID(); got != "" {
		t.Error(got)
	}
}
