package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// root is a certificate of vendor-roots.json.
type root struct {
	Vendor, Subject, Issuer, SHA256, Ends, Address, Source string
}

// withTables is the page of vendors' roots with a table for each vendor of the list.
func withTables(page string, list []byte) (string, error) {
	var all []root
	if err := json.Unmarshal(list, &all); err != nil {
		return "", err
	}
	var vendors []string
	for _, r := range all {
		if !slices.Contains(vendors, r.Vendor) {
			vendors = append(vendors, r.Vendor)
		}
	}
	if len(vendors) == 0 || strings.Count(page, ": make generate -->\n") != len(vendors) {
		return "", errors.New("the page has not one table for each vendor of the list")
	}
	for _, vendor := range vendors {
		var err error
		if page, err = replaced(page, vendor, table(all, vendor)); err != nil {
			return "", err
		}
	}
	return page, nil
}

// table lists a vendor's certificates.
func table(all []root, vendor string) string {
	var out strings.Builder
	out.WriteString("| subject | ends | SHA-256 of the DER | fetched at | from |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range all {
		if r.Vendor != vendor {
			continue
		}
		if r.Issuer != "" {
			r.Subject += " (issued by " + r.Issuer + ")"
		}
		if r.Address == "" {
			r.Address = "not known"
		}
		fmt.Fprintf(&out, "| %s | %s | `%s` | %s | %s |\n", r.Subject, r.Ends, r.SHA256, r.Address, r.Source)
	}
	return out.String()
}
