package csr

import (
	"context"
	"encoding/asn1"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// Every field is copied, and no slice is shared, in future fields too.
func TestPolicyClone(t *testing.T) {
	full := &Policy{
		SignerNames:       []string{SignerClientTPM},
		ClusterIDs:        []string{"cluster-a"},
		Machines:          func(context.Context, Question) (*Machine, error) { return nil, ErrNoMachine },
		IssuedRecord:      func(context.Context, string, *Request) (*IssuedRecord, error) { return nil, ErrNoRecord },
		RequireProviderID: true, Flag: asn1.ObjectIdentifier{1, 2, 3}, RequireFlag: true,
		ReservedIPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, ReservedDNSNames: []string{"a.example"},
		MaxLifetime: time.Hour, BuiltInSignerDuration: time.Hour,
		Now: time.Now,
	}
	clone := full.Clone()
	want, got := reflect.ValueOf(full).Elem(), reflect.ValueOf(clone).Elem()
	for n := range want.NumField() {
		t.Run(want.Type().Field(n).Name, func(t *testing.T) {
			a, b := want.Field(n), got.Field(n)
			if a.IsZero() {
				t.Fatal("not filled in by this test")
			}
			switch a.Kind() {
			case reflect.Func:
				if a.Pointer() != b.Pointer() {
					t.Error("another function")
				}
			case reflect.Slice:
				if !reflect.DeepEqual(a.Interface(), b.Interface()) || a.Pointer() == b.Pointer() {
					t.Error("not copied, or shared")
				}
			case reflect.Pointer, reflect.Map:
				t.Error("this test does not know how such a field is copied")
			default:
				if !a.Equal(b) {
					t.Errorf("got %v, want %v", b, a)
				}
			}
		})
	}
	if (*Policy)(nil).Clone() != nil {
		t.Error("the clone of nil")
	}
}
