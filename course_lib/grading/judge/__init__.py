"""Call an answer within limits, and compare what it returns with what is expected. No page is known here."""
