package claims

import (
	"errors"
	"io"
	"testing"
)

func TestError(t *testing.T) {
	for want, e := range map[string]*Error{
		"claims-size": {Check: CheckSize},
		"claims-size: got 5 bytes, want at most 4": {Check: CheckSize, Got: "5 bytes", Want: "at most 4"},
		"claims-size: got nothing, want one":       {Check: CheckSize, Want: "one"},
		"claims-size: got two: EOF":                {Check: CheckSize, Got: "two", Err: io.EOF},
		`claims-type: got \n\x1b[1m\u202eé: \x00`:  {Check: CheckType, Got: "\n\x1b[1m\u202eé", Err: errors.New("\x00")},
		"claims-type: got é":                       {Check: CheckType, Got: "é"},
	} {
		if e.Error() != want {
			t.Errorf("got  %s\nwant %s", e.Error(), want)
		}
		if !errors.Is(e, e.Check) || e.Err != nil && !errors.Is(e, e.Err) || errors.Is(e, CheckTime) {
			t.Errorf("%v: wrong errors inside", e)
		}
	}
	var none *Error
	if none.Error() == "" || none.Unwrap() != nil {
		t.Error("a nil error")
	}
}
