package main

import (
	"encoding/json"
	"runtime"
	"testing"
)

func TestVersionNamesTheToolchain(t *testing.T) {
	mustContain(t, expect(t, exitDone, "version").stdout, "haengine ", runtime.Version())
	var v versionInfo
	if err := json.Unmarshal([]byte(expect(t, exitDone, "version", "--json").stdout), &v); err != nil {
		t.Fatal(err)
	}
	if v.Go != runtime.Version() || v.Version == "" {
		t.Errorf("version is %+v", v)
	}
}
