-- Error texts: how an error is kept, wherever it enters.

-- _text_masked: a text without what looks like a credential (D9). Providers and drivers put such things into
-- their messages; tables that are kept for long, and handlers, must not have them.
--
-- The same rules as model::mask, rule by rule; a property test holds both to the same answers. So no rule
-- needs to go back: what follows a repetition never fits the repetition. The first look is for the
-- usual text, in which there is nothing to mask.
create or replace function towpath._text_masked(p_text text) returns text
    language plpgsql immutable parallel safe
as $$
declare
    _text text collate "C" := p_text;
    -- Between a name and its value, and a value without quotes.
    _assigned constant text := '[\\"'']*[ \t]*[:=][:=>]*[ \t]*';
    _plain constant text := '[^[:space:],;"''&}\\:=>][^[:space:],;"''&}\\]*';
begin
    if (_text ~* ('://|-----BEGIN |bearer|basic|authorization|passw|passphrase|passcode|pwd|secret|token|credential|cookie|jwt|key'
                  || '|eyJ|AKIA|ASIA|AIza|[a-z]_[a-z0-9_+/=-]|(sk|pat|xox[a-z])-')) is not true then
        return p_text;
    end if;
    -- A block of PEM, or the beginning of one.
    _text := regexp_replace(_text, '-----BEGIN [A-Z0-9 ]+-----((?!-----END ).)*(-----END [A-Z0-9 ]+-----)?', '***', 'g');
    -- scheme://user:password@host
    _text := regexp_replace(_text, '(://[^:/@[:space:]]*:)[^[:space:]"''<>]*@', '\1***@', 'g');
    -- Authorization: Bearer …
    _text := regexp_replace(_text, '(authorization' || _assigned || '(\\*["''])?((bearer|basic|digest|token|negotiate)[ \t]+)?)'
                                   || _plain, '\1***', 'gi');
    -- Bearer … and Basic … by themselves, followed by what no sentence has.
    _text := regexp_replace(_text, '(\m(Bearer|bearer|BEARER|Basic|basic|BASIC)[ \t]+)'
        || '(?=[A-Za-z0-9._~+/=-]*([0-9_~+=]|[a-z][A-Z]))[A-Za-z0-9._~+/=-]{8,}', '\1***', 'g');
    -- password=…, "api_key": "…", client_secret => …
    _text := regexp_replace(_text, '((password|passwd|passphrase|passcode|pwd|secret|token|credential|cookie|jwt'
        || '|(api|access|private|secret|signing|encryption)[_-]?key)s?' || _assigned || ')'
        || '((\\*["''])([^"''\\]|\\[^"''])*|' || _plain || ')', '\1\5***', 'gi');
    -- A JSON Web Token, with or without its signature.
    _text := regexp_replace(_text, 'eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}(\.[A-Za-z0-9_-]*)?', '***', 'g');
    -- Keys that say what they are: sk_…, whsec_…, ghp_…, and our own tpx_…
    _text := regexp_replace(_text, '(\m(re|sk|pk|rk|whsec|tpx|github_pat|npm|hf|gh[a-z])_)'
        || '(?=[A-Za-z0-9_+/=-]*([0-9]|[a-z][A-Z]))[A-Za-z0-9_+/=-]{12,}', '\1***', 'g');
    _text := regexp_replace(_text, '(\m(sk|glpat|xox[a-z])-)(?=[A-Za-z0-9_-]*([0-9]|[a-z][A-Z]))[A-Za-z0-9_-]{12,}', '\1***', 'g');
    -- Ids of access keys of Amazon, and API keys of Google.
    _text := regexp_replace(_text, '(\m(AKIA|ASIA))[0-9A-Z]{16,}', '\1***', 'g');
    return regexp_replace(_text, '(\mAIza)[0-9A-Za-z_-]{30,}', '\1***', 'g');
end;
$$;

-- _error_text: an error as it is stored: never blank, never huge, without credentials. Every function that
-- stores an error calls this.
create or replace function towpath._error_text(p_error text) returns text
    language sql immutable parallel safe
as $$
    select case when coalesce(btrim(p_error), '') = '' then 'no error text'
                else left(towpath._text_masked(left(p_error, 8000)), 8000) end
$$;
